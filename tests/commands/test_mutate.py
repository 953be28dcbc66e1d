"""What `pv mutate` is asked, and what it shows."""

import json
import subprocess
import sys
from typing import Any

import pytest

import pv
from pv.errors import UsageError
from pv.mutation import summary


def test_a_survivor_is_shown_as_a_diff_with_its_place_and_who_tried(shop: Any) -> None:
    said = summary.text([shop.mutate("shop")], 0.5)
    assert (
        "shop.py:12 shop:price [comparison] survived\n"
        "  -    if member and pieces > 10:\n"
        "  +    if member and pieces >= 10:\n"
        "  tried by S-PRICE\n"
    ) in said
    assert "shop.py:13 shop:price [dropped] no coverage\n" in said
    assert said.startswith("shop by S-PRICE: mutation score 46.6 % (7 of 15 killed, 6 without coverage)\n")


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["nothing"], {}, "nothing matches nothing; the contracts are shop"),
        (["S-PRICE"], {"record": True, "paths": ["two"]}, "a score is recorded for a contract as it stands"),
        (["shop"], {"record": True, "widely": True}, "a score is recorded for a contract as it stands"),
        (["shop"], {"sample": 0}, "sample is 0; it must be at least 1"),
        (["shop"], {"paths": ["broken"]}, "shop cannot be run: "),
    ],
)
def test_what_cannot_be_measured_is_refused(shop: Any, names: list[str], options: dict[str, Any], message: str) -> None:
    text = (shop.folder / "contracts/shop.yaml").read_text()
    two, broken = text + shop.claim("S-2", "falsify_leave"), text.replace("subject: shop", "subject: shoe")
    for name, changed in (("two", two), ("broken", broken)):
        (shop.folder / name).mkdir()
        (shop.folder / name / "shop.yaml").write_text(changed)
    with pytest.raises(UsageError, match=message):
        pv.mutate(names, **options)


def test_the_command_shows_survivors_and_ends_with_its_exit_code(shop: Any) -> None:
    command = [sys.executable, "-m", "pv", "mutate", "shop", "--sample", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("shop by ") and done.stdout.endswith("s; exit 0\n")
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, timeout=120)
    said = json.loads(done.stdout)
    assert (said["contracts"][0]["sampled"], len(said["contracts"][0]["mutants"])) == (6, 6)

"""Names that Python cannot import, and keys that are missing, are reported once and by their cause."""

from collections.abc import Callable
from pathlib import Path

import pytest

HEAD = "schema: pv/1\nmetadata: {id: a, version: 1.0.0, description: d, references: [r]}\n"
CLAIM = "{id: F, rule: r, prediction: p, if_fails: i, test: 'falsifiers/f.py::falsify_f'}"


@pytest.mark.parametrize(
    ("lines", "place", "renamed"),
    [
        (f"subject: my-module\nfalsifiers:\n- {CLAIM}", "3:10", "my_module"),
        (f"subject: pkg.my-module:f\nfalsifiers:\n- {CLAIM}", "3:10", "pkg.my_module:f"),
        (
            "subject: m\nfalsifiers:\n- " + CLAIM.replace("::falsify_f", "::falsify-f"),
            "5:54",
            "falsifiers/f.py::falsify_f",
        ),
    ],
)
def test_hyphen_in_a_name_of_code_is_named(
    write: Callable[[str], Path], refusals: Callable[[Path], list[str]], lines: str, place: str, renamed: str
) -> None:
    (found,) = refusals(write(f"{HEAD}{lines}\n"))
    assert found.startswith(f"{place} PV012 invalid value ")
    assert found.endswith(f"; Python names have no '-': rename it, such as to '{renamed}'")


def test_keys_that_are_missing_together_are_reported_once(
    write: Callable[[str], Path], refusals: Callable[[Path], list[str]]
) -> None:
    claim = CLAIM.replace("rule: r, prediction: p, ", "")
    found = refusals(write(f"{HEAD}subject: m\nfalsifiers:\n- {claim}\n"))
    assert found == ["5:3 PV011 missing key 'rule', 'prediction' in 'falsifiers[0]'; add it"]

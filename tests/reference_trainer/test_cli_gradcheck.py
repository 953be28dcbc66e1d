"""`reference-trainer gradcheck`: its lines, its exit code, its device, and the flags that it refuses."""

import io
import math
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reference_trainer.distillation import gradcheck
from reference_trainer.models import placement
from tests.reference_trainer.commands import Ended, Failing, command

AGREE = gradcheck.AGREE
TEMPERATURES = [0.25, 1.0, 2.0, 4.0, 20.0]
DIFFERENCES = st.sampled_from([0.0, 1e-16, AGREE, math.nextafter(AGREE, 1), 0.5, math.inf, math.nan])


def checked(differences: Any, *arguments: str, **options: Any) -> tuple[Ended, list[Any]]:
    """Run `gradcheck` with these differences instead of those of the trainer; return the arguments of the calls too."""
    asked = list[Any]()

    def found(*given: Any) -> Any:
        asked.append(given)
        return zip(TEMPERATURES, differences, strict=True)

    with mock.patch.object(gradcheck, "differences", found):
        return command("gradcheck", *arguments, **options), asked


@given(differences=st.tuples(*[DIFFERENCES] * 5), heard=st.booleans())
@example(differences=(AGREE,) * 5, heard=True)
@settings(max_examples=50, deadline=None)
def test_gradients_agree_if_every_difference_is_rounding(differences: tuple[float, ...], heard: bool) -> None:
    """Exit code 0 if no difference exceeds the bound or is NaN, else 1, also if the lines cannot be written."""
    out = io.StringIO() if heard else Failing(OSError(28, "No space left on device"))
    ended, _ = checked(differences, "--device", "cpu", out=out)
    agree = all(difference <= AGREE for difference in differences)
    lines = [
        f"temperature {t:5.2f}: relative difference {d:.2e}" for t, d in zip(TEMPERATURES, differences, strict=True)
    ]
    last = f"{'agree' if agree else 'DIFFER'} on cpu: at most 1e-10 is rounding"
    assert ended.code == (0 if agree else 1)
    assert ended.said.splitlines() == ([*lines, last] if heard else [])


def test_sizes_and_seed_are_passed_on() -> None:
    flags = ["--device", "cpu", "--vocabulary", "7", "--positions", "3", "--seed", "5"]
    assert checked([0.0] * 5, *flags)[1] == [(torch.device("cpu"), (2, 3, 7), 5)]


@pytest.mark.parametrize("name", ["", "cpu", "cuda", "cuda:1"])
def test_check_runs_on_the_given_device(name: str) -> None:
    """The default is `auto`, two sequences of 64 positions and 512 tokens."""
    meta = mock.Mock(return_value=torch.device("meta"))
    with mock.patch.object(placement, "usable_device", meta):
        ended, asked = checked([0.0] * 5, *(["--device", name] if name else []))
    meta.assert_called_once_with(name or "auto")
    assert asked == [(torch.device("meta"), (2, 64, 512), 0)]
    assert ended.said.splitlines()[-1] == "agree on meta: at most 1e-10 is rounding"


@pytest.mark.parametrize("name", ["abacus", "meta", "cuda:999"])
def test_unusable_device_is_refused(name: str) -> None:
    ended = command("gradcheck", "--device", name)
    assert ended.code == 2 and ended.complaints.startswith("error: ") and repr(name) in ended.complaints


@pytest.mark.parametrize(
    "flags", [("--vocabulary", "1"), ("--positions", "0"), ("--seed", "-1"), ("--vocabulary", "1000001")]
)
def test_unusable_size_is_refused(flags: tuple[str, str]) -> None:
    assert command("gradcheck", *flags).code == 2

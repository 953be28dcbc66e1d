"""`reference-trainer gradcheck`: its lines, its exit code, and the flags that it refuses."""

import math
from unittest import mock

import pytest

from reference_trainer.distillation import gradcheck
from tests.reference_trainer.commands import Failing, command

TEMPERATURES = [0.25, 1.0, 2.0, 4.0, 20.0]


def test_gradients_of_the_trainer_agree() -> None:
    ended = command("gradcheck", "--device", "cpu", "--vocabulary", "7", "--positions", "3")
    *lines, last = ended.said.splitlines()
    assert (ended.code, last) == (0, "agree on cpu: at most 1e-10 is rounding")
    assert [line.split(":")[0] for line in lines] == [f"temperature {t:5.2f}" for t in TEMPERATURES]


@pytest.mark.parametrize("wrong", [math.nextafter(gradcheck.AGREE, 1), math.inf, math.nan])
def test_one_difference_beyond_rounding_is_a_failure_also_if_it_cannot_be_printed(wrong: float) -> None:
    found = [*zip(TEMPERATURES, [0.0, 1e-16, gradcheck.AGREE, 0.0, wrong], strict=True)]
    with mock.patch.object(gradcheck, "differences", lambda *given: found):
        ended = command("gradcheck")
        lost = command("gradcheck", out=Failing(OSError(28, "No space left on device")))
    assert (ended.code, lost.code) == (1, 1)
    assert "DIFFER on" in ended.said


@pytest.mark.parametrize(
    "flags", [("--vocabulary", "1"), ("--positions", "0"), ("--seed", "-1"), ("--device", "cuda:999")]
)
def test_unusable_size_or_device_is_refused(flags: tuple[str, str]) -> None:
    assert command("gradcheck", *flags).code == 2

"""The figures of a verdict."""

import pytest

from pv.report import figures
from tests.report.handmade import PLAIN

VERDICT = PLAIN.contracts[0]


@pytest.mark.parametrize(("number", "text"), [(0, "0 errors"), (1, "1 error"), (2, "2 errors")])
def test_noun_has_the_number_of_its_count(number: int, text: str) -> None:
    assert figures.count(number, "error") == text


def test_results_are_counted_by_device_and_outcome() -> None:
    assert figures.selected(VERDICT) == 5
    assert figures.devices(VERDICT) == ["cpu", "cuda"]
    on_cpu, on_cuda = (figures.claimed_on(VERDICT, device) for device in ("cpu", "cuda"))
    assert (len(on_cpu), figures.held(on_cpu), figures.proved(VERDICT)) == (5, 1, (0, "proved"))
    assert (len(on_cuda), figures.held(on_cuda)) == (1, 1)
    assert figures.stated(VERDICT) == "5 falsifiers stated, 5 run"
    assert figures.ran(VERDICT)
    assert figures.lint_errors(VERDICT) == 0

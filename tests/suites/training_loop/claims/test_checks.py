import pytest

from pv.suites.training_loop.claims.cases import equal, job
from pv.suites.training_loop.claims.checks import Cell, common, judge
from tests.suites.training_loop.planting import correct


def test_every_failing_cell_is_named_and_the_first_explained(capsys: pytest.CaptureFixture[str]) -> None:
    run = correct().run(job(equal(3)))
    with pytest.raises(AssertionError) as error:
        judge({"a": Cell(run), "b": Cell(run, "too long", ("x", "y")), "c": Cell(run, "too short", ("y",))})
    assert str(error.value) == "b: too long; it is y (2 of 3 cells fail: b; c)"
    assert capsys.readouterr().out.split()[:2] == ["step", "examples"]


def test_cells_without_a_fault_are_no_refutation() -> None:
    judge({"a": Cell(correct().run(job(equal(3))))})


def test_first_cell_explains_where_no_cause_is_common() -> None:
    run = correct().run(job(equal(3)))
    assert common([Cell(run, "a", ("x", "y")), Cell(run, "b", ("z",))]) == ("x", "y")

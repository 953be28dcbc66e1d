"""A run is executed once for all falsifiers that read it."""

import pv
from pv.results.outcome import Outcome
from tests.commands.small import Project, edit, outcomes


def test_a_run_that_raises_falsifies_what_reads_it(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "return [step for", "raise ValueError('no steps')\n    return [step for")
    report = pv.validate()
    assert outcomes(report)["C-RUN"] is outcomes(report)["C-RUN-FIRST"] is Outcome.FALSIFIED
    assert "ValueError: no steps" in pv.render(report)

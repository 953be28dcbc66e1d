"""A run is executed once for all falsifiers that read it."""

import pv
from pv.results.outcome import Outcome
from pv.results.verdict import Report
from tests.commands.small import Project, edit, outcomes, result


def test_a_run_that_raises_falsifies_what_reads_it(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "return [step for", "raise ValueError('no steps')\n    return [step for")
    report = pv.validate()
    assert outcomes(report)["C-RUN"] is outcomes(report)["C-RUN-FIRST"] is Outcome.FALSIFIED
    assert "ValueError: no steps" in pv.render(report)


def _validated(project: Project, right: str, wrong: str) -> Report:
    """Return the report on a project in which a falsifier has another subject, with `wrong` in place of `right`."""
    folder = project("small")
    text = (folder / "counting.py").read_text()
    (folder / "losing.py").write_text(text.replace(right, wrong))
    edit(folder / "contracts/counting.yaml", "  run: whole\n  kills", "  run: whole\n  subject: losing\n  kills")
    return pv.validate()


def test_falsifiers_of_other_subjects_read_executions_of_their_own(project: Project) -> None:
    """The other subject counts from 0; a mutant is judged where the falsifier holds at the small arguments."""
    report = _validated(project, "range(1, total(epochs, steps) + 1)", "range(total(epochs, steps))")
    found = result(report, "C-RUN-FIRST")
    assert (found.outcome, outcomes(report)["C-RUN"]) == (Outcome.FALSIFIED, Outcome.HELD)
    assert found.trial is not None and {name.partition(":")[0] for name in found.trial.reached} == {"losing"}
    assert [trace.run for trace in report.contracts[0].runs] == ["whole", "whole of losing"]

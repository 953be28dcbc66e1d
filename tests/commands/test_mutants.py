"""What becomes of a falsifier whose mutants survive, cannot be planted, or break something else."""

import pv
from pv.results.outcome import Outcome
from tests.commands.small import Project, edit, result


def test_a_falsifier_that_kills_nothing_is_vacuous(project: Project) -> None:
    folder = project("small")
    edit(folder / "falsifiers/falsify_counting.py", "== sorted([limit, epochs * steps])[0]", ">= 0")
    report = pv.validate()
    assert report.exit_code == 1
    assert result(report, "C-LIMIT").outcome is Outcome.VACUOUS
    assert result(report, "C-LIMIT").reason == "the mutant 'limit-ignored' survived it (its code was reached)"
    assert report.contracts[0].killed == {"epoch-lost", "last-step-lost", "from-zero"}


def test_a_mutant_in_a_module_that_is_never_imported_is_void(project: Project) -> None:
    folder = project("small")
    (folder / "other.py").write_text("def unused():\n    return 1\n")
    edit(folder / "counting.py", "import sys\n", "import sys\n\nif not sys.argv:\n    import other\n")
    contract = folder / "contracts/counting.yaml"
    edit(contract, "kills: [limit-ignored, limit-forgotten]", "kills: [limit-ignored, limit-forgotten, elsewhere]")
    contract.write_text(
        contract.read_text()
        + '- {id: elsewhere, fault: another module, edit: {function: "other:unused", find: "1", replace: "2"}}\n'
    )
    found = result(pv.validate(), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert found.reason == "the mutant 'elsewhere' could not be judged: other was never imported"


def test_a_mutant_that_breaks_the_import_is_not_killed(project: Project) -> None:
    folder = project("small")
    edit(folder / "contracts/counting.yaml", 'replace: "True"}', "replace: '[][0]'}")
    edit(folder / "counting.py", "def total(", "FIRST = 1\n\n\ndef total(")
    edit(
        folder / "contracts/counting.yaml",
        'function: "counting:total", find: limit is None',
        'function: "counting:FIRST", find: "1"',
    )
    found = result(pv.validate(), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert found.reason == "the mutant 'limit-ignored' could not be judged: IndexError: list index out of range"


def test_small_arguments_must_satisfy_the_claim(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "return [step for step in", "return [step + (epochs == 2) for step in")
    edit(folder / "contracts/counting.yaml", "kills: [last-step-lost]", "kills: [last-step-lost, from-zero]")
    found = result(pv.validate(only=["C-RUN-FIRST"]), "C-RUN-FIRST")
    assert found.outcome is Outcome.ERROR
    assert found.reason.startswith("the clean subject fails at the run's `small` arguments")


def test_a_mutant_that_names_what_is_not_there_kills_nothing(project: Project) -> None:
    folder = project("small")
    edit(folder / "contracts/counting.yaml", 'replace: "True"}', "replace: undefined}")
    found = result(pv.validate(), "C-LIMIT")
    assert found.outcome is Outcome.ERROR
    assert "'limit-ignored' could not be judged: NameError: name 'undefined' is not defined" in found.reason


def test_what_ran_at_import_alone_is_no_sign_that_a_falsifier_reaches_its_subject(project: Project) -> None:
    folder = project("small")
    edit(folder / "counting.py", "def total(", "def _first():\n    return 1\n\n\nFIRST = _first()\n\n\ndef total(")
    edit(folder / "falsifiers/falsify_counting.py", "== sorted([limit, epochs * steps])[0]", ">= 0")
    text = (folder / "falsifiers/falsify_counting.py").read_text()
    (folder / "falsifiers/falsify_counting.py").write_text(text.replace("subject.total(epochs, steps, limit)", "1"))
    found = result(pv.validate(only=["C-LIMIT"]), "C-LIMIT")
    assert (found.outcome, found.reason) == (
        Outcome.VACUOUS,
        "the subject was never reached: no function of it ran",
    )

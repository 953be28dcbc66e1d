"""A validation runs only what has changed since earlier ones, and says how much was taken over."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

import pv
from pv.commands.report_cache import ReportCache
from pv.errors import UsageError
from pv.execution.consumers import Progress
from pv.report import render
from pv.results.outcome import Outcome
from pv.results.verdict import Report
from tests.commands.small import edit, outcomes, result, run
from tests.results.handmade import HELD, decided
from tests.support.processes import python
from tests.support.projects import Project

REMEMBERED = "nothing has changed since the validation of"
ONLY = ("validate", "--only", "C-WHOLE")


class Validation:
    """Validates with earlier results; `tried` has the labels of what ran in the last validation, in order."""

    def __init__(self) -> None:
        self.tried: list[str] = []

    def __call__(self, **options: Any) -> Report:
        self.tried = []
        return pv.validate(**{"reuse": True, "jobs": 2, "on_progress": self.note, **options})

    def note(self, progress: Progress) -> None:
        self.tried += [label for label in progress.running if label not in self.tried]


@pytest.fixture
def validate() -> Validation:
    return Validation()


def test_note_names_the_difference_of_the_environment(
    project: Project, validate: Validation, monkeypatch: pytest.MonkeyPatch
) -> None:
    project("small")
    validate(only=["C-WHOLE"], mutants=False)
    monkeypatch.setenv("NUMBER_OF_THE_BUILD", "2")
    report = validate(only=["C-WHOLE"], mutants=False)
    assert report.notes == (
        "no earlier result is reused, because the environment differs: variable NUMBER_OF_THE_BUILD",
    )
    assert "results reused from earlier validations: 1" in validate(only=["C-WHOLE"], mutants=False).notes


def test_results_are_reused_of_a_validation_that_began_in_another_folder(project: Project, tmp_path: Path) -> None:
    folder, elsewhere = project("small"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = ("-m", "pv", "validate", str(folder / "contracts"), "--no-mutants")
    assert python(*command, cwd=elsewhere).returncode == 0
    edit(folder / "counting.py", "import sys", "# a comment\nimport sys")
    assert "results reused from earlier validations: 5\n" in python(*command, cwd=elsewhere).stdout


def test_failure_is_never_reused(project: Project, validate: Validation) -> None:
    folder = project("small")
    edit(folder / "counting.py", "epochs * steps", "epochs + steps")
    validate(only=["C-WHOLE"])
    again = validate(only=["C-WHOLE"])
    assert "C-WHOLE" in validate.tried and result(again, "C-WHOLE").outcome is Outcome.FALSIFIED
    for _ in range(2):
        done = run(*ONLY)
        assert done.returncode == 1 and REMEMBERED not in done.stdout


def test_renamed_mutant_and_lower_limit_are_seen(project: Project, validate: Validation) -> None:
    folder = project("small")
    validate(only=["C-WHOLE"])
    contract = folder / "contracts/counting.yaml"
    contract.write_text(contract.read_text().replace("epoch-lost", "one-epoch-lost"))
    report = validate(only=["C-WHOLE"])
    assert validate.tried == [] and result(report, "C-WHOLE").outcome is Outcome.HELD
    assert report.notes == ("results reused from earlier validations: 2",)
    assert [mutant.mutant for mutant in result(report, "C-WHOLE").mutants] == ["one-epoch-lost"]
    assert validate(only=["C-RUN-FIRST"], mutants=False).exit_code == 0
    edit(contract, "C-RUN-FIRST", "C-START")
    report = validate(only=["C-START"], mutants=False)
    assert report.notes == ("results reused from earlier validations: 1",)
    assert result(report, "C-START").trial.falsifier == "C-START"
    edit(contract, "  prediction: epochs times steps\n", "  prediction: epochs times steps\n  limit: 7\n")
    validate(only=["C-WHOLE"])
    assert "C-WHOLE" in validate.tried


def test_nothing_is_stored_of_code_that_is_edited_while_it_is_tried(project: Project, validate: Validation) -> None:
    code = project("small") / "counting.py"
    sound = code.read_text()
    options: Any = {"only": ["C-LIMIT"], "mutants": False}
    edited = sound.replace("epochs * steps", "steps * epochs")
    # The callback runs when the claim starts: after its key was computed, before its result comes.
    assert validate(**options, on_progress=lambda _: code.write_text(edited)).exit_code == 0
    code.write_text(sound)
    assert validate(**options).notes == ()


def test_invalid_requests_leave_no_cache(project: Project, validate: Validation) -> None:
    folder = project("small")
    with pytest.raises(UsageError):
        validate(subjects={"counting": "no such module"})
    assert not (folder / ".pv_cache").exists()


def test_other_options_of_a_task_are_another_task(project: Project, validate: Validation) -> None:
    project("small")
    validate(only=["C-WHOLE"], mutants=False)
    for options in ({"seed": 1}, {"examples": 3}):
        validate(only=["C-WHOLE"], mutants=False, **options)
        assert "C-WHOLE" in validate.tried


def test_fail_fast_tries_the_shortest_claim_of_a_changed_function_first(project: Project, validate: Validation) -> None:
    folder = project("small")
    validate(only=["C-LIMIT", "C-WHOLE", "C-RUN*"], mutants=False)
    edit(folder / "counting.py", "min(limit, whole)", "min(whole, limit)")
    validate(mutants=False, fail_fast=True)
    assert validate.tried.index("C-COMMAND") == 3  # it was never measured
    assert {*validate.tried[:3]} == {"C-LIMIT", "C-WHOLE", "run whole"}


def test_fail_fast_tries_the_last_failure_first(project: Project, validate: Validation) -> None:
    folder = project("small")
    validate(mutants=False)
    test = folder / "falsifiers/falsify_counting.py"
    right, wrong = "counted = subject.count(epochs, steps)", "counted = subject.count(epochs, steps + 1)"
    edit(test, right, wrong)
    assert validate(mutants=False).exit_code == 1
    edit(test, wrong, right)
    edit(folder / "counting.py", "min(limit, whole)", "min(whole, limit)")
    assert validate(mutants=False, fail_fast=True).exit_code == 0
    assert validate.tried[0] == "run whole"


def test_after_the_first_failure_results_on_mutants_are_still_reported(project: Project, validate: Validation) -> None:
    folder = project("small")
    assert validate(only=["C-LIMIT", "C-WHOLE", "C-RUN*"]).exit_code == 0
    edit(folder / "counting.py", "return [step for", "return [step + 1 for")
    report = validate(only=["C-LIMIT", "C-WHOLE", "C-RUN*"], fail_fast=True)
    ends = outcomes(report)
    assert (ends["C-LIMIT"], ends["C-WHOLE"], ends["C-RUN-FIRST"]) == (Outcome.HELD, Outcome.HELD, Outcome.FALSIFIED)
    assert validate.tried[0] == "run whole"
    assert not any(label.startswith(("C-LIMIT", "C-WHOLE")) for label in validate.tried)


def test_report_is_the_same_but_for_its_note(project: Project) -> None:
    folder = project("small")
    first, second = (run(*ONLY, "-v", "--output", f"json={name}.json") for name in ("a", "b"))
    third = run(*ONLY, "-v")  # the reports above are new files
    assert (first.returncode, second.returncode, third.returncode) == (0, 0, 0)
    last = run(*ONLY, "-v")
    assert REMEMBERED in last.stdout
    lines = [line for line in first.stdout.splitlines() if " s on cpu" not in line]
    assert [line for line in last.stdout.splitlines() if line in lines] == lines
    assert json.loads((folder / "a.json").read_text())["contracts"]


def test_any_changed_file_or_evidence_makes_another_report(project: Project) -> None:
    folder = project("small")
    run(*ONLY)
    assert REMEMBERED in run(*ONLY).stdout
    edit(folder / "counting.py", "epochs * steps", "steps * epochs")
    assert REMEMBERED not in run(*ONLY).stdout
    (folder / "evidence").mkdir(exist_ok=True)
    (folder / "evidence/other.txt").write_text("")
    assert REMEMBERED not in run(*ONLY).stdout


ANOTHER: dict[str, Any] = {
    "paths": ["contracts"],
    "only": ["C-LIMIT"],
    "contracts": ["counting"],
    "devices": ["cpu"],
    "require": ["cuda"],
    "subjects": {"counting": "theirs"},
    "examples": 3,
    "seed": 1,
    "mutants": False,
    "shard": (1, 2),
    "record": True,
    "replay": "{}",
    "spawn": True,
    "reuse": False,  # nothing is looked up with these
}


def test_a_cached_report_is_found_with_the_same_options_only(project: Project) -> None:
    project("small")
    time.sleep(0.01)  # a file that changed since the start of a validation is not trusted
    options: dict[str, Any] = {**dict.fromkeys(ANOTHER), "paths": [], "reuse": True}
    passing = Report(contracts=(decided(*HELD),), findings=())
    first = ReportCache(options)
    assert first.lookup() is None
    first.store(passing, render(passing, "json"))
    assert ReportCache(options).lookup() is not None
    hits = [name for name in ANOTHER if ReportCache({**options, name: ANOTHER[name]}).lookup() is not None]
    assert hits == [], "options with which the report of other options is printed"
    code = Path("counting.py")
    sound, edited = code.read_text(), ReportCache({**options, "seed": 5})
    edited.lookup()
    code.write_text(f"{sound}\n")
    edited.store(passing, render(passing, "json"))
    code.write_text(sound)
    assert ReportCache({**options, "seed": 5}).lookup() is None, "the code was edited while it was validated"


SHARING = '''"""A loop that imports a module and reads a file in its smallest job, which one worker runs for all."""

from pv.suites.training_loop.loop import Loop


class Sharing(Loop):
    def run(self, job):
        if len(job.train) == 4:
            from ordering import order

            order()
        return super().run(job)
'''
ORDERING = """def order():
    with open("order.txt") as file:
        return file.read()
"""


def test_files_read_by_shared_runs_of_a_suite_are_dependencies(project: Project, validate: Validation) -> None:
    folder = project("trainers")
    (folder / "sharing.py").write_text(SHARING)
    (folder / "ordering.py").write_text(ORDERING)
    (folder / "order.txt").write_text("seeded")
    edit(folder / "contracts/my-loop.yaml", "trainers:Unclipped", "sharing:Sharing")
    claims = {f"my-loop.{id_}" for id_ in ("TL-DATA-003", "TL-CLIP-001", "TL-PAD-001")}

    def tried_again() -> set[str]:
        assert set(outcomes(validate(only=[*claims])).values()) == {Outcome.HELD}
        return claims.intersection(validate.tried)

    assert tried_again() == claims
    assert tried_again() == set()
    edit(folder / "ordering.py", "return file.read()", "return file.read().strip()")
    assert tried_again() == claims
    edit(folder / "order.txt", "seeded", "sorted")
    assert tried_again() == claims

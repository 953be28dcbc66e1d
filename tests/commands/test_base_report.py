"""The base of a comparison is a report, or the contracts of a commit, which are not run."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pv.commands.base_report import compare_with_base, read_base
from pv.contract.load import load
from pv.contract.suites import for_other_subject, is_suite, suites
from pv.errors import UsageError
from pv.report import render
from pv.results.evidence import Evidence
from pv.results.outcome import Selection
from pv.results.saved.changes import BaseComparison, ChangeKind, find_differences
from pv.results.saved.report import parse
from pv.results.verdict import Report, decide
from tests.commands.small import edit, run
from tests.support.processes import git
from tests.support.projects import copy, write

ROOT = Path(__file__).parents[2]
CONTRACT = Path("contracts/counting.yaml")
EQUATION = """equations:
  twice:
    domain: {x: int 1..9}
    expression: 2 * x
    implemented_by: total(x, 2)
    tolerance: {absolute: 0.5, why: a reason}
falsifiers:
- {id: C-TWICE, rule: two steps an epoch, prediction: twice as many, if_fails: another factor, equation: twice}
"""


def commit() -> None:
    git("add", "-A")
    git("commit", "--allow-empty", "-qm", "a")


@pytest.fixture
def small(empty: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose project is in a folder of it, on a branch that left main."""
    # The project is a folder below the root of the repository, as in many monorepos.
    git("init", "-q")
    monkeypatch.chdir(project := copy("small", empty / "project"))
    edit(CONTRACT, "falsifiers:\n", EQUATION)
    commit()
    git("checkout", "-qb", "work")
    return project


def tree() -> Report:
    """Return a report of the contracts of the working tree without results."""
    commit()
    now = read_base("HEAD")
    return replace(now, contracts=tuple(replace(verdict, absent="") for verdict in now.contracts))


def weaker(name: str = "main") -> list[tuple[str, str]]:
    return [(change.place, change.text) for change in difference(name).failing]


def difference(name: str = "main") -> BaseComparison:
    base = read_base(name)
    return compare_with_base(base, tree(), "weaker")


def test_weaker_clauses_of_a_branch_are_reported_with_their_lines(small: Path) -> None:
    edit(CONTRACT, "absolute: 0.5", "absolute: 0.75")
    edit(CONTRACT, "  kills: [limit-ignored, limit-forgotten]\n", "  kills: [limit-ignored]\n  examples: 9\n")
    edit(CONTRACT, "arguments: {epochs: 5", "arguments: {epochs: 2")
    lines = CONTRACT.read_text().splitlines()
    places = {text: place for place, text in weaker()}
    assert {text: lines[int(place.rpartition(":")[2]) - 1].strip() for text, place in places.items()} == {
        "the absolute tolerance of twice is 0.75, was 0.5": "tolerance: {absolute: 0.75, why: a reason}",
        "mutant no longer named: limit-forgotten": "kills: [limit-ignored]",
        "fewer examples asked for: 9, was 100": "examples: 9",
        "arguments of run whole changed: 'epochs 2', was 'epochs 5'": "- name: whole",
    }


def test_removed_claims_and_contracts_are_reported_with_their_line_in_the_base(small: Path) -> None:
    text = CONTRACT.read_text()
    start, end = text.index("- id: C-COMMAND"), text.index("- id: C-RUN\n")
    line = text[:start].count("\n") + 1
    CONTRACT.write_text(text[:start] + text[end:])
    assert weaker() == [(f"contracts/counting.yaml:{line} in the base", "removed: the command says the same")]
    changes = [("contracts/counting.yaml:1 in the base", "contract removed, with 6 claims")]
    CONTRACT.rename("contracts/counting.txt")
    assert weaker() == changes
    Path("contracts/counting.txt").rename(CONTRACT)
    edit(Path("pyproject.toml"), "[tool.pv]\n", '[tool.pv]\ncontracts = ["elsewhere"]\n')
    assert weaker() == changes, "contracts that are no longer read"


def test_contracts_in_a_folder_that_is_named_are_read_from_the_commit(small: Path) -> None:
    copy("small", other := Path("other"))
    write(other, {".old/mean.yaml": MEAN, "MEAN.YML": MEAN})
    edit(other / CONTRACT, "id: counting", "id: elsewhere")
    commit()
    base = read_base("HEAD", [other])
    expected = {"contracts/counting.yaml", "other/contracts/counting.yaml", "other/other.yaml", "other/MEAN.YML"}
    assert {str(v.contract.location.path) for v in base.contracts} == expected
    Path("r.json").write_text(render(base, "json"))
    assert "ADDED" not in run("report", "r.json", "--baseline", "HEAD").stdout


def test_clauses_added_to_main_later_are_not_reported(small: Path) -> None:
    git("checkout", "-q", "main")
    later = "- {id: C-LATER, rule: later, prediction: equal, if_fails: a, equation: twice}\n"
    edit(CONTRACT, "- id: C-COMMAND", f"{later}- id: C-COMMAND")
    commit()
    git("checkout", "-q", "work")
    assert difference().changes == ()


def test_a_base_that_cannot_be_read_is_noted(small: Path) -> None:
    good = CONTRACT.read_text()
    CONTRACT.write_text("schema: pv/1\n")
    commit()
    CONTRACT.write_text(good)
    unread, static = difference("HEAD").notes
    assert unread.startswith("the base's contracts/counting.yaml is not compared: ")
    assert static == "the base was not run: only its contracts are compared, not its results"


def test_a_changed_test_is_noted_with_its_claims(small: Path) -> None:
    (test,) = {claim.test.file for verdict in tree().contracts for claim in verdict.contract.falsifiers if claim.test}
    Path(test).write_text(Path(test).read_text() + "# changed\n")
    (new := Path(test).with_name("größe.py")).write_text("# new\n")
    _, *notes = difference().notes
    assert [note.partition(" changed, with tests or faults of C-")[0] for note in notes] == [test, str(new)]
    assert all(note.endswith("is not detected") for note in notes)


def test_an_unknown_baseline_is_refused(small: Path) -> None:
    with pytest.raises(UsageError, match="unknown baseline 'man': neither a file nor a commit"):
        read_base("man")
    refused = run("validate", "--baseline", "--all")
    assert (refused.returncode, "unknown baseline '--all'" in refused.stderr) == (3, True)


def test_validate_fails_for_a_weakening_of_a_passing_contract(small: Path) -> None:
    edit(CONTRACT, "- id: C-WHOLE\n", "- id: C-WHOLE\n  examples: 9\n")
    words = ("validate", "contracts", "--only", "C-WHOLE", "--no-mutants", "--baseline", "main")
    failed = run(*words, "--output", "junit=r.xml", "--output", "sarif=r.sarif", "--output", "json=r.json")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    place = "contracts/counting.yaml:22"
    assert f"WEAKER     counting C-WHOLE {place}: fewer examples asked for: 9, was 100" in failed.stdout
    assert "restore them, or accept each with an entry of `waivers`" in failed.stdout
    assert failed.stdout.rstrip().endswith("exit 1")
    assert '<failure message="fewer examples asked for: 9, was 100" type="weaker" />' in Path("r.xml").read_text()
    assert '"counting/weaker"' in Path("r.sarif").read_text()
    assert run(*words, "--fail-on", "never").returncode == 0
    cached = run(*words)
    assert "nothing has changed since" in cached.stdout
    assert cached.returncode == 1, "a cached report is compared with the base, too"
    today = "\nwaivers:\n- {weaker: C-WHOLE, owner: ann, reason: it is slow, expires: 2999-12-31}\n"
    CONTRACT.write_text(CONTRACT.read_text() + today)
    waived = run(*words)
    assert waived.returncode == 0, waived.stdout
    assert "WEAKER, WAIVED counting C-WHOLE" in waived.stdout
    assert "waived until 2999-12-31 by ann: it is slow" in waived.stdout
    shown = run("report", "r.json", "--partial", "--baseline", "main")
    assert (shown.returncode, "fewer examples asked for" in shown.stdout) == (0, True)
    assert run("report", "r.json", "--partial", "--baseline", "main", "--fail-on", "weaker").returncode == 1


def test_a_failure_is_annotated_at_the_line_that_the_branch_changed(small: Path) -> None:
    edit(Path("counting.py"), "    return whole if", "    whole += 1\n    return whole if")
    words = ("validate", "contracts", "--only", "C-WHOLE", "--no-mutants", "--format", "github")
    assert "::error file=counting.py,line=6,col=1,title=falsified%3A C-WHOLE" in run(*words).stdout
    changed = run(*words, "--baseline", "main")
    assert "::error file=counting.py,line=8,col=1,title=falsified%3A C-WHOLE" in changed.stdout


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Report]:
    """Return the contracts of this repository and of every suite, a suite also with another subject: read, and of git.

    They are not run: a comparison of definitions does not read results.
    """
    folder = tmp_path_factory.mktemp("whole")
    (folder / "pyproject.toml").write_text('[tool.pv]\nroots = ["."]\n')
    for file in (*(ROOT / "contracts").glob("*.yaml"), *suites().values()):
        (folder / "contracts").mkdir(exist_ok=True)
        shutil.copy(file, folder / "contracts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        git("init", "-q")
        commit()
        base = read_base("HEAD")
        contracts = load([folder / "contracts"]).contracts
    own_verdicts = [decide(contract, Evidence(), Selection()) for contract in contracts]
    others = [
        decide(for_other_subject(contract), Evidence(), Selection()) for contract in contracts if is_suite(contract)
    ]
    verdicts = (*own_verdicts, *(replace(verdict, subject="other") for verdict in others))
    return base, replace(base, contracts=verdicts, findings=())


def test_unchanged_contracts_are_not_weaker_than_a_report_or_a_commit(whole: tuple[Report, Report]) -> None:
    commit, fresh = whole
    saved = parse(render(fresh, "json"), "r.json")
    assert len(fresh.contracts) > len(commit.contracts) > len(suites())
    for base in (saved, fresh, commit):
        for now in (fresh, saved):
            differences = [change for change in find_differences(base, now) if change.kind is not ChangeKind.ADDED]
            assert [(change.contract, change.text) for change in differences] == []


MEAN = """schema: pv/1
metadata: {id: mean, version: 1.0.0, description: A running mean, references: [arithmetic]}
subject: mean:Mean
suite: mean-metric
"""
MEAN_CODE = """class Mean:
    def __init__(self):
        self.total, self.weight = 0.0, 0

    def update(self, value, weight=1):
        self.total, self.weight = self.total + float(value) * weight, self.weight + weight

    def compute(self):
        return self.total / self.weight if self.weight else float("nan")
"""


def test_reused_results_of_a_contract_with_a_suite_are_not_weaker(small: Path) -> None:
    write(Path(), {"contracts/mean.yaml": MEAN, "mean.py": MEAN_CODE})
    commit()
    words = ("validate", "contracts/mean.yaml", "--only", "mean.MTR-EMPTY-001", "--no-mutants")
    first = run(*words, "--output", "json=base.json")
    assert first.returncode == 0, first.stdout
    project = parse(Path("base.json").read_text(), "base.json").project
    assert project.keys() == {"counting", "mean"}, "pv report counts the contracts that were not named"
    for base in ("base.json", "HEAD"):
        reused = run(*words, "--baseline", base)
        assert (reused.returncode, "WEAKER" in reused.stdout) == (0, False), reused.stdout


def test_adapter_that_leaves_out_more_is_weaker_and_computed_features_are_noted(small: Path) -> None:
    git("checkout", "-q", "main")
    write(Path(), {"contracts/mean.yaml": MEAN, "mean.py": MEAN_CODE})
    commit()
    git("checkout", "-qB", "work")

    def with_features(text: str) -> tuple[list[str], list[str]]:
        Path("mean.py").write_text(f"{MEAN_CODE}{text}\n")
        return [text for _, text in weaker()], [note for note in difference().notes if "adapter" in note]

    assert with_features("") == ([], [])
    assert with_features("    features = {'merge': 'none', 'reset': computed()}") == (
        [
            "less measured: 1 claim not tried; mean.py: `merge` is now declared missing ('none')",
            "less measured: 1 claim not tried; mean.py: `reset` is now declared missing (computed())",
        ],
        [],
    )
    _, (note,) = with_features("    features = computed()")
    assert note.startswith("mean.py changed, the adapter of mean: only a comparison with a saved report shows")


def test_a_renamed_function_is_not_weaker_where_the_new_one_is_judged_alike(small: Path) -> None:
    words = ("validate", "contracts", "--only", "C-TWICE", "--only", "C-RUN", "--baseline", "HEAD")
    for file in (CONTRACT, Path("counting.py"), Path("falsifiers/falsify_counting.py"), Path("falsifiers/swaps.py")):
        file.write_text(re.sub(r"\btotal\b", "steps_of_run", file.read_text()))
    renamed = run(*words)
    assert renamed.returncode == 0, renamed.stdout
    assert "counting:total renamed" in renamed.stdout and "WEAKER" not in renamed.stdout
    (code := Path("counting.py")).rename("counted.py")
    contract = CONTRACT.read_text()
    CONTRACT.write_text(contract.replace("counting:", "counted:").replace("subject: counting", "subject: counted"))
    moved = run(*words)
    assert (moved.returncode, "; counting renamed" in moved.stdout) == (0, True), moved.stdout
    CONTRACT.write_text(contract)
    Path("counted.py").rename(code)
    code.write_text(code.read_text() + "\n\ndef total(epochs, steps, limit=None):\n    return epochs + steps\n")
    kept = run(*words)
    weaker = [line for line in kept.stdout.splitlines() if line.startswith("WEAKER")]
    assert kept.returncode == 1 and any("implemented_by of equation twice changed" in line for line in weaker)
    assert " renamed" not in kept.stdout

"""The base of a comparison is a report, or the contracts of a commit, of which nothing is run."""

from dataclasses import replace
from pathlib import Path

import pytest

from pv.commands.baseline import compared, read
from pv.errors import UsageError
from pv.results.saved.gate import Compared
from pv.results.verdict import Report
from tests.commands.small import edit, run
from tests.support.processes import git
from tests.support.projects import copy

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
    git("init", "-q")
    monkeypatch.chdir(project := copy("small", empty / "project"))
    edit(CONTRACT, "falsifiers:\n", EQUATION)
    commit()
    git("checkout", "-qb", "work")
    return project


def tree() -> Report:
    """Return the contracts of the working tree, of which nothing was run."""
    commit()
    now = read("HEAD")
    return replace(now, contracts=tuple(replace(verdict, absent="") for verdict in now.contracts))


def weaker(name: str = "main") -> list[tuple[str, str]]:
    return [(change.place, change.text) for change in difference(name).failing]


def difference(name: str = "main") -> Compared:
    base = read(name)
    return compared(base, tree(), "weaker")


def test_what_a_branch_weakened_is_found_at_its_line(small: Path) -> None:
    edit(CONTRACT, "absolute: 0.5", "absolute: 0.75")
    edit(CONTRACT, "  kills: [limit-ignored, limit-forgotten]\n", "  kills: [limit-ignored]\n  examples: 9\n")
    edit(CONTRACT, "arguments: {epochs: 5", "arguments: {epochs: 2")
    lines = CONTRACT.read_text().splitlines()
    found = {text: place for place, text in weaker()}
    assert {text: lines[int(place.rpartition(":")[2]) - 1].strip() for text, place in found.items()} == {
        "the absolute tolerance of twice is 0.75, was 0.5": "tolerance: {absolute: 0.75, why: a reason}",
        "mutant no longer named: limit-forgotten": "kills: [limit-ignored]",
        "fewer examples asked for: 9, was 100": "examples: 9",
        "arguments of run whole changed: 'epochs 2', was 'epochs 5'": "- name: whole",
    }


def test_what_is_gone_is_named_with_its_line_in_the_base(small: Path) -> None:
    text = CONTRACT.read_text()
    start, end = text.index("- id: C-COMMAND"), text.index("- id: C-RUN\n")
    line = text[:start].count("\n") + 1
    CONTRACT.write_text(text[:start] + text[end:])
    assert weaker() == [(f"contracts/counting.yaml:{line} in the base", "removed: the command says the same")]
    CONTRACT.rename("contracts/counting.txt")
    assert weaker() == [("contracts/counting.yaml:1 in the base", "contract removed, with 6 claims")]


def test_contracts_that_are_no_longer_read_are_gone(small: Path) -> None:
    edit(Path("pyproject.toml"), "[tool.pv]\n", '[tool.pv]\ncontracts = ["elsewhere"]\n')
    assert [text for _, text in weaker()] == ["contract removed, with 6 claims"]


def test_what_main_got_after_the_branch_left_it_is_not_missed(small: Path) -> None:
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
    assert static == "nothing of the base was run: its contracts are compared, and no results"


def test_a_changed_test_is_noted_with_its_claims(small: Path) -> None:
    (test,) = {claim.test.file for verdict in tree().contracts for claim in verdict.contract.falsifiers if claim.test}
    Path(test).write_text(Path(test).read_text() + "# changed\n")
    _, note = difference().notes
    assert note.startswith(f"{test} changed, with tests or faults of C-") and note.endswith("is not seen here")


def test_an_unknown_baseline_is_refused(small: Path) -> None:
    with pytest.raises(UsageError, match="unknown baseline 'man': neither a file nor a commit"):
        read("man")
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
    assert run(*words[:1], *words[1:], "--fail-on", "never").returncode == 0
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

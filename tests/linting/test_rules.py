"""Functions, subjects and names that a contract needs exist and fit; nothing is imported."""

from pathlib import Path

import pytest
import yaml

from tests.support import projects
from tests.support.projects import BAD, HEAD, linted

CLAIM = '- {id: F, rule: r, prediction: p, if_fails: f, test: "t.py::attack"}'
CONTRACT = f"{HEAD}subject: tiny\nfalsifiers:\n{CLAIM}\n"


def findings(folder: Path, test: str, contract: str = CONTRACT) -> list[tuple[str, str]]:
    code = "def double(number):\n    return 2 * number\n"
    files = {"tiny.py": code, "t.py": f"raise RuntimeError('imported')\n{test}", "c.yaml": contract}
    return [(f.code, f.hint) for f in linted(folder, files)]


def test_claim_on_two_devices_needs_the_parameter_device(tmp_path: Path) -> None:
    contract = CONTRACT.replace('attack"', 'attack", devices: [cpu, cuda]')
    (finding,) = findings(tmp_path, "def attack(subject): assert True\n", contract)
    assert finding == ("PV112", "add the parameter `device`")
    assert findings(tmp_path, "def attack(subject, device): assert True\n", contract) == []


def test_an_argument_of_a_command_is_in_one_of_its_words(tmp_path: Path) -> None:
    runs = 'runs: [{name: told, command: [python, "{n}"], arguments: {n: 1, m: 2}}]\n'
    found = findings(tmp_path, "def attack(subject): assert True\n", CONTRACT + runs)
    assert ("PV112", "write {m} in one of its words") in found and len(found) == 2, found


def test_fresh_cuda_evidence_needs_one_claim_on_cuda(tmp_path: Path) -> None:
    gate = "qa_gate: {id: G, name: g, require: {cuda: fresh}}\n"
    second = CLAIM.replace("id: F", "id: G").replace('attack"', 'both", devices: [cpu, cuda]')
    code = "def attack(subject): assert True\ndef both(subject, device): assert True\n"
    assert findings(tmp_path, code, f"{CONTRACT}{second}\n{gate}") == []
    assert [code for code, _ in findings(tmp_path, code, CONTRACT + gate)] == ["PV151"]


def test_a_contract_is_no_judge_of_its_own_scope(tmp_path: Path) -> None:
    scope = "mutation_scope: {modules: [tiny], judges: [c]}\n"
    assert findings(tmp_path, "def attack(subject): assert True\n", CONTRACT + scope) == [("PV138", "none is declared")]


def findings_of_subjects(folder: Path, subjects: str) -> list[tuple[str, str]]:
    contract = folder / "c.yaml"
    contract.write_text(f"{(BAD / 'good.yaml').read_text()}subjects:\n{subjects}")
    return [(f.code, f.hint) for f in projects.findings(BAD / "project", contract)]


def test_subject_that_claims_as_an_earlier_one_has_no_finding(tmp_path: Path) -> None:
    part = 'target: "faults:triple", not_claimed: [{falsifiers: [F-GOOD], why: it triples, reference: its manual}]'
    text = f"- {{name: a, {part}}}\n- {{name: b, target: faults, claims_as: a}}\n"
    assert findings_of_subjects(tmp_path, text) == []


def test_a_waiver_names_a_clause_of_any_kind_that_exists_or_is_removed(tmp_path: Path) -> None:
    subject = "- {name: twin, target: faults}\nwaivers:\n"
    for key, problems in (("weaker", []), ("removed", [("PV152", "use `weaker` for a clause that asks for less")])):
        for name in ("twin", "F-GOOD"):
            waiver = f"- {{{key}: {name}, owner: ann, reason: slow, expires: 2026-12-31}}\n"
            assert findings_of_subjects(tmp_path, subject + waiver) == problems, (key, name)


@pytest.mark.parametrize("subject", ["fautls", "faults, claims_as: b", "faults, claims_as: a"])
def test_unknown_name_is_an_error(tmp_path: Path, subject: str) -> None:
    expected = ("PV196", "none is declared") if "," in subject else ("PV120", "did you mean 'faults'?")
    assert findings_of_subjects(tmp_path, f"- {{name: a, target: {subject}}}\n") == [expected]


@pytest.mark.parametrize("section", ["falsifiers", "mutants", "obligations"])
def test_a_duplicate_id_names_the_line_of_the_first(tmp_path: Path, section: str) -> None:
    entries = {
        "falsifiers": "[{id: A, rule: r, prediction: p, if_fails: f, test: t.py::t}]",
        "mutants": '[{id: B, fault: f, edit: {function: "t:f", find: x, replace: y}}]',
        "obligations": "[{id: C, statement: s}]",
    }
    used = {"falsifiers": "A", "mutants": "B", "obligations": "C"}[section]
    text = HEAD + "".join(f"{key}: {value}\n" for key, value in entries.items())
    text += f'runs: [{{name: {used}, callable: "t.py::run"}}]\nsubjects: [{{name: {used}, target: tiny}}]\n'
    duplicates = [f for f in linted(tmp_path, {"c.yaml": text}) if f.code == "PV101"]
    line = 3 + list(entries).index(section)
    assert [f.message for f in duplicates] == [f"duplicate id {used!r} (first defined at line {line})"] * 2


def test_a_mutant_id_that_another_contract_uses_is_found(tmp_path: Path) -> None:
    mutants = 'mutants: [{id: M, fault: f, edit: {function: "tiny:double", find: number, replace: "1"}}]\n'
    contracts = {f"{id_}.yaml": HEAD.replace("id: c", f"id: {id_}") + f"falsifiers: []\n{mutants}" for id_ in "ab"}
    theirs = (BAD / "PV202.yaml").read_text().replace("FALSIFY-D-001", "M")  # whose ids no command takes
    (duplicate,) = (finding for finding in linted(tmp_path, {"0.yaml": theirs, **contracts}) if finding.code == "PV102")
    assert duplicate.message.startswith("duplicate mutant id 'M' (first defined at ")


@pytest.mark.parametrize(
    ("find", "replace", "message", "hint"),
    [
        ("number * 1", "x", "'number * 1' occurs 0 times in 'double'", "the text occurs only inside a larger expr"),
        ("'2 *'", "x", "'2 *' is neither an expression nor whole", "the text occurs only inside a larger expression"),
        ("number", "x", "'number' occurs 2 times in 'double'", "the text occurs several times: extend `find` by the"),
        ("number + 5", "x", "'number + 5' occurs 0 times", "if this change of tiny:double is intended, copy the curr"),
        ("2 * number", "'2 *'", "invalid replacement '2 *': expected an expression", ""),
    ],
)
def test_edit_that_does_not_apply_gets_the_hint_of_its_problem(
    tmp_path: Path, find: str, replace: str, message: str, hint: str
) -> None:
    code = "def double(number):\n    return 2 * number * 1 + number\n"
    edit = f"find: {find}, replace: {replace}}}"
    contract = (BAD / "PV133.yaml").read_text().replace("find: number + number, replace: number * 3}", edit)
    (finding,) = (f for f in linted(tmp_path, {"tiny.py": code, "c.yaml": contract}) if f.code == "PV133")
    assert message in finding.message
    assert finding.hint.startswith(hint) and bool(finding.hint) == bool(hint)


FUNCTIONS = yaml.safe_load((Path(__file__).parent / "functions.yaml").read_text())


@pytest.mark.parametrize("test", FUNCTIONS["wrong"])
def test_function_that_could_not_be_called_or_checks_nothing_has_a_finding(tmp_path: Path, test: str) -> None:
    ((code, hint),) = findings(tmp_path, test)
    expected, start = FUNCTIONS["wrong"][test]
    assert code == expected and hint.startswith(start)


@pytest.mark.parametrize("test", FUNCTIONS["right"])
def test_function_that_can_be_called_and_may_fail_has_no_finding(tmp_path: Path, test: str) -> None:
    assert findings(tmp_path, test) == []


MANY = """\
subject: tiny
obligations: [{id: USED, statement: s}, {id: LEFT, statement: s}, {id: ALSO, statement: s}]
falsifiers:
- {id: F, obligation: USED, rule: r, prediction: p, if_fails: f, test: "t.py::attack", kills: [m, mm, nn]}
- {id: G, obligation: USD, rule: r, prediction: p, if_fails: f, test: "t.py::attack", run: whol, kills: [n]}
- {id: I, rule: r, prediction: p, if_fails: f, equation: ee}
- {id: J, rule: r, prediction: p, if_fails: f, test: "t.py::predicate", run: large}
- {id: F, rule: r, prediction: p, if_fails: f, test: "t.py::attack", kills: [m]}
- {id: K, rule: r, prediction: p, if_fails: f, test: "t.py::fixture"}
runs:
- {name: whole, callable: "t.py::run", small: {}}
- {name: large, callable: "t.py::run"}
equations: {e: {domain: {x: real}, expression: x, implemented_by: double(x)}}
mutants:
- {id: m, fault: f, edit: {function: "tiny:double", find: "2", replace: "3"}}
- {id: n, fault: f, edit: {function: "tiny:double", find: "2", replace: "4"}}
- {id: o, fault: f, edit: {function: "tiny:double", find: "2", replace: "5"}}
- {id: G, fault: f, edit: {function: "tiny:double", find: "2", replace: "6"}}
qa_gate: {id: Q, name: g, require: {falsifiers: [F, X, A], mutants: [m, q], harnesses: [H]}}
"""

PROBLEMS = """\
10:3 PV101 duplicate id 'F' (first defined at line 6); rename one
11:54 PV114 K: t.py::fixture has the parameter `tmp_path`, which nothing supplies; falsifiers get no
13:3 PV144 no falsifier reads the run 'whole'; give a falsifier `run: whole`
14:3 PV145 the run 'large' has no `small` arguments; mutants are run with `small` arguments
15:13 PV185 no falsifier checks the equation 'e'; add a falsifier with `equation: e` and no `test`
19:3 PV131 no falsifier claims to kill 'o'; list the mutant in the `kills` of a falsifier
20:3 PV101 duplicate id 'G' (first defined at line 7); rename one
20:3 PV131 no falsifier claims to kill 'G'; list the mutant in the `kills` of a falsifier
21:10 PV150 unknown falsifier 'A' in the gate; known: F, F, G, I, J, K
21:10 PV150 unknown falsifier 'X' in the gate; known: F, F, G, I, J, K
21:10 PV150 unknown harness 'H' in the gate; none is declared
21:10 PV150 unknown mutant 'q' in the gate; known: G, m, n, o
4:41 PV141 no falsifier checks the obligation 'LEFT'; give a falsifier `obligation: LEFT`
4:67 PV141 no falsifier checks the obligation 'ALSO'; give a falsifier `obligation: ALSO`
6:103 PV130 F: unknown mutant 'nn'; did you mean 'n'?
6:99 PV130 F: unknown mutant 'mm'; did you mean 'm'?
7:23 PV140 G: unknown obligation 'USD'; did you mean 'USED'?
7:71 PV112 G: t.py::attack accepts subject; add the parameter `run`
7:92 PV143 G: unknown run 'whol'; did you mean 'whole'?
8:58 PV142 I: unknown equation 'ee'; did you mean 'e'?
"""


def test_every_problem_of_a_contract_is_listed_at_its_place(tmp_path: Path) -> None:
    code = "def double(number):\n    return 2 * number\n"
    test = "def attack(subject): assert subject\ndef predicate(run): assert run\n"
    test += "def fixture(subject, tmp_path): assert tmp_path\n"
    test += "def run(subject, device, directory, trace): ...\n"
    problems = linted(tmp_path, {"tiny.py": code, "t.py": test, "c.yaml": HEAD + MANY})
    shown = [f"{f.location.line}:{f.location.column} {f.code} {f.message}; {f.hint}"[:100] for f in problems]
    assert sorted(shown) == PROBLEMS.splitlines()
    assert problems == sorted(problems, key=lambda finding: (finding.location, finding.code))

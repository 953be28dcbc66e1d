"""Contracts and claims are named by path, id or pattern; a request that cannot be met is refused at once."""

from pathlib import Path
from typing import Any

import pytest

import pv
from pv.commands.explain import reuse_statuses
from pv.commands.naming import ids, resolve_names
from pv.commands.plan import Request, check, plan_validation
from pv.contract.finding import Severity
from pv.errors import UsageError
from pv.results.outcome import Selection
from pv.results.verdict import Shard
from pv.source.project import find_project
from tests.support.projects import HEAD, Project

SECOND = """subject: counting
falsifiers: []
harnesses:
- {id: H-SECOND, rule: r, if_fails: f, predicate: "p.py::prove", bounds: {n: 0..1}, engine: exhaustive}
"""


@pytest.fixture
def folder(project: Project) -> Path:
    copied = project("small")
    second = HEAD.replace("id: c", "id: second") + SECOND
    (copied / "contracts/second.yaml").write_text(second)
    return copied


def test_a_claim_is_its_file_with_this_claim_beside_patterns_and_paths(folder: Path) -> None:
    named = resolve_names(["C-LIMIT"], find_project(folder))
    assert ([path.name for path in named.paths], named.claims) == (["counting.yaml"], ("C-LIMIT",))
    (contract,) = check(["C-LIMIT"])[0]
    assert [claim.id for claim in named.select(contract).claims] == ["C-LIMIT"]
    paths = resolve_names(["*co*"], find_project(folder)).paths
    assert [path.name for path in paths] == ["counting.yaml", "second.yaml"]
    named = resolve_names(["contracts/second.yaml", "C-LIMIT"], find_project(folder))
    assert [path.name for path in named.paths] == ["second.yaml", "counting.yaml"]
    assert named.claims == ("H-SECOND", "C-LIMIT")
    assert {"second", "H-SECOND", "C-LIMIT"} < ids().keys(), "which a shell completes"


def test_malformed_contract_is_found_by_the_name_of_its_file(folder: Path) -> None:
    (folder / "contracts/broken.yaml").write_text("schema: pv/2\n")
    assert [finding.code for finding in check(["broken"])[1]] == ["PV014"]


UNKNOWN = {
    "countin": "no such file, folder, contract or claim: countin; did you mean 'counting'?",
    "C-LIMITS": "no such file, folder, contract or claim: C-LIMITS; did you mean 'C-LIMIT'?",
    "a/b": "no such file or folder: a/b; name a contract file or a folder of contracts",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_name_is_refused_with_a_similar_one(folder: Path, name: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve_names([name], find_project(folder))
    assert str(refused.value) == UNKNOWN[name]


def test_request_runs_only_named_claims_that_only_selects_too(folder: Path) -> None:
    project = find_project(folder)
    both = plan_validation(project, Request(paths=["C-LIMIT", "second"]))
    assert both.selections["counting"].falsifiers == frozenset({"C-LIMIT"})
    one = plan_validation(project, Request(paths=["counting"], only=["C-L*"]))
    assert one.selections["counting"].falsifiers == frozenset({"C-LIMIT"})
    with pytest.raises(UsageError, match="--only X matches none of the named claims"):
        plan_validation(project, Request(paths=["C-LIMIT"], only=["X"]))


def test_error_in_a_contract_that_is_not_requested_is_not_reported(folder: Path) -> None:
    (folder / "contracts/second.yaml").write_text(HEAD.replace("id: c", "id: second") + SECOND.replace("p.py", "q.py"))
    project = find_project(folder)

    def errors(request: Request) -> set[str]:
        findings = plan_validation(project, request).findings
        return {finding.location.path.name for finding in findings if finding.severity is Severity.ERROR}

    assert errors(Request()) == {"second.yaml"}
    assert errors(Request(contracts=["counting"])) == set()
    assert errors(Request(only=["C-LIMIT"])) == set()


def test_project_without_contracts_gets_a_hint_to_pv_new(empty: Path) -> None:
    with pytest.raises(UsageError, match="write a first one with `pv new`"):
        check()
    with pytest.raises(UsageError, match=r"contract or claim: contracts; the project has no contracts, `pv new`"):
        check(["contracts"])
    assert pv.validate([empty]).exit_code == 2


def test_names_that_match_nothing_exit_with_2_and_a_hint(project: Project) -> None:
    project("small")
    for report, note in (
        (pv.validate(only=["NO-SUCH"]), "no claim matches 'NO-SUCH' (`pv list` shows all ids)"),
        (pv.validate(contracts=["none"]), "no contract matches 'none' (`pv list` shows all ids)"),
        (pv.validate(only=["C-LIMIT", "TYPO"]), "note: --only TYPO matches nothing"),
    ):
        assert report.exit_code == 2
        assert note in pv.render(report)


def test_why_refuses_a_claim_that_does_not_exist(project: Project) -> None:
    project("small")
    with pytest.raises(UsageError, match=r"no claim matches 'C-LIMT' \(`pv list` shows all ids\)"):
        reuse_statuses(["C-LIMIT", "C-LIMT"])


UNRECORDED = (
    "--record needs the subject, the examples and the seed of the contract: omit --record, or --subject, --replay, "
    "--examples and --seed"
)
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"jobs": 0}, "invalid value 0 for 'jobs': expected a positive integer"),
    ({"examples": -1}, "invalid value -1 for 'examples': expected a positive integer"),
    ({"devices": ["cpu", "tpu"]}, "unknown device 'tpu' (choose from cpu, cuda)"),
    ({"require": frozenset({"mps"})}, "unknown device 'mps' (choose from cpu, cuda)"),
    ({"shard": Shard(1, 2), "replay": "{}"}, "--shard does not take --replay"),
    (
        {"replay": "{}", "only": ["C-L*", "C-W*"]},
        "a replay needs exactly one claim, not 2: name it with --only",
    ),
    (
        {"record": True, "contracts": ["counting"]},
        "--record writes only proofs and results of devices other than the CPU: add --device cuda",
    ),
    *(
        ({"record": True, "devices": ["cuda"], **weaker}, UNRECORDED)
        for weaker in ({"examples": 5}, {"seed": 1}, {"subjects": {"counting": "counting"}}, {"replay": "{}"})
    ),
]


@pytest.mark.parametrize(("request_", "message"), REFUSED)
def test_a_request_that_contradicts_itself_is_refused(folder: Path, request_: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan_validation(find_project(folder), Request(**request_))
    assert str(refused.value) == message


ALL = ["C-COMMAND", "C-LIMIT", "C-RUN", "C-RUN-FIRST", "C-WHOLE"]
LEFT_OUT = "left out, since they claim nothing on cuda: second"
PLANNED: list[tuple[dict[str, Any], dict[str, list[str]], tuple[str, ...], tuple[str, ...]]] = [
    ({}, {"counting": ALL, "second": ["H-SECOND"]}, (), ()),
    ({"contracts": ["sec*"]}, {"second": ["H-SECOND"]}, (), ()),
    ({"only": ["C-R*"]}, {"counting": ["C-RUN", "C-RUN-FIRST"]}, (), ()),
    ({"only": ["C-L*", "X"]}, {"counting": ["C-LIMIT"]}, ("--only X matches nothing",), ("--only X",)),
    (
        {"contracts": ["second", "x"]},
        {"second": ["H-SECOND"]},
        ("--contract x matches nothing",),
        ("--contract x",),
    ),
    (
        {"only": ["C-LIMIT"], "contracts": ["second"]},
        {},
        ("no claim matches 'C-LIMIT' in contracts that match 'second' (`pv list` shows all ids)",),
        ("--only C-LIMIT with --contract second",),
    ),
    ({"devices": ["cuda"]}, {"counting": ALL}, (LEFT_OUT,), ()),
    ({"devices": ["cuda"], "require": frozenset({"cuda"})}, {"counting": ALL, "second": ["H-SECOND"]}, (), ()),
    ({"record": True}, {"counting": ALL, "second": ["H-SECOND"]}, (), ()),
    (
        {"devices": ["cuda"], "only": ["C-LIMIT"]},
        {},
        ("nothing was measured: no claim is for cuda",),
        ("--only C-LIMIT",),
    ),
]


@pytest.mark.parametrize(("request_", "selected", "notes", "unmatched"), PLANNED, ids=[str(row[0]) for row in PLANNED])
def test_a_request_selects_claims_and_says_what_it_leaves_out(
    folder: Path, request_: dict[str, Any], selected: dict[str, list[str]], notes: Any, unmatched: Any
) -> None:
    plan = plan_validation(find_project(folder), Request(**request_))
    shown = {c.id: sorted(f.id for f in c.claims if plan.selections[c.id].selects(f)) for c in plan.contracts}
    assert (shown, plan.notes, plan.unmatched) == (selected, notes, unmatched)


def test_the_options_of_a_request_reach_every_selection(folder: Path) -> None:
    options = {"devices": ["cuda", "cpu", "cuda"], "require": frozenset({"cuda"}), "examples": 5}
    plan = plan_validation(find_project(folder), Request(contracts=["counting"], **options))
    expected = Selection(devices=("cuda", "cpu"), require=frozenset({"cuda"}), examples=5)
    assert plan.selections == {"counting": expected}
    plan = plan_validation(find_project(folder), Request(only=["C-LIMIT"], replay="{}"))
    assert plan.selections == {"counting": Selection(falsifiers=frozenset({"C-LIMIT"}), mutants=False, replay=True)}


def test_a_faulty_file_fails_only_a_request_that_includes_it(folder: Path) -> None:
    def planned(**request: Any) -> tuple[list[str], list[bool], tuple[str, ...]]:
        plan = plan_validation(find_project(folder), Request(**request))
        codes = [finding.code for finding in plan.findings if finding.severity is not Severity.NOTICE]
        return codes, [plan.runnable(contract) for contract in plan.contracts], plan.unmatched

    assert planned() == (["PV110"], [True, False], ())  # the predicate of `second` does not exist
    assert planned(contracts=["counting"]) == ([], [True], ())
    (folder / "contracts/broken.yaml").write_text("schema: pv/2\n")
    assert planned(contracts=["counting"]) == (["PV014"], [True], ())
    assert planned(only=["C-LIMIT", "X"]) == (["PV014"], [True], ("--only X",))
    assert planned(contracts=["broken"]) == (["PV014"], [], ())
    assert planned(paths=["contracts/counting.yaml"]) == ([], [True], ())


def test_claims_that_a_requested_subject_does_not_make_are_known(project: Project) -> None:
    root = find_project(project("compared"))
    reason = "it raises StatisticsError (docs.python.org, statistics.fmean)"
    for subject, not_claimed in {"modest": {"M-NOTHING": reason}, "defective": {}}.items():
        plan = plan_validation(root, Request(subjects={"mean": subject}))
        assert plan.selections["mean"].not_claimed == not_claimed
        assert str(plan.subjects["mean"]) == f"peers.{subject}"
    assert plan_validation(root, Request()).subjects == {}
    (suite,), findings = check(["lr-schedule"], subjects={"lr-schedule": "mean"})
    assert (suite.mutants, findings) == ((), ()), "the mutants are faults of the suite's own subject"
    with pytest.raises(UsageError, match=r"subject modets: .*; did you mean 'modest'\?"):
        plan_validation(root, Request(subjects={"mean": "modets"}))

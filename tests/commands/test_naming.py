"""Contracts and claims are named by path, id or pattern; a request that cannot be met is refused at once."""

from pathlib import Path

import pytest

import pv
from pv.commands.explain import why
from pv.commands.naming import resolve_names
from pv.commands.plan import Request, check, plan_validation
from pv.errors import UsageError
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
        why(["C-LIMIT", "C-LIMT"])

"""The pytest plugin, by real pytest runs: tests of falsifiers and of contracts, and projects without any."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import SkipTest

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pv
from pv.contract.load import load
from pv.contract.model import Binding, Falsifier, Run, Target
from pv.engines.suite.engine import UnknownClaim
from pv.engines.trial import Counterexample, EquationMutants, Trial, TrialStatus
from pv.pytest_plugin import claims
from pv.pytest_plugin.arguments import BoundClaim, Rows, RunRequest
from pv.pytest_plugin.claims import Workers
from pv.pytest_plugin.suites import SuiteClaim, leave_out_skipped
from pv.source.project import find_project
from pv.source.resolve import Unbound
from pv.suites.bench import SuiteBench
from tests.commands.small import edit
from tests.results.handmade import HERE, contract, falsifier, trial
from tests.support.processes import run_pytest
from tests.support.projects import Project, write


def test_a_mutant_is_planted(project: Project) -> None:
    project("small")
    done = run_pytest("falsifiers/", "-k", "limit", "--pv-mutant", "limit-ignored")
    assert done.returncode == 1
    assert "not the smaller of the two" in done.stdout
    assert "1 failed" in done.stdout
    unknown = run_pytest("falsifiers/", "--pv-mutant", "nothing")
    assert unknown.returncode == 4
    assert "unknown mutant 'nothing' (choose from counting/epoch-lost, counting/from-zero" in unknown.stderr


def test_a_project_without_contracts_is_left_alone_also_without_assertions(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    test = "import sys\ndef test_it():\n    assert 'pv.contract.load' not in sys.modules\n"
    theirs = {"falsify_theirs.py": "raise RuntimeError('imported')\n", "test_it.py": test}
    write(empty, {"pyproject.toml": "[project]\nname = 'other'\n", **theirs})
    done = run_pytest()
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    assert "pv: falsify_theirs.py not collected: no contract was found" in done.stdout
    assert f"expected a `schema: pv/1` file below {empty}/contracts, or a [tool.pv] table" in done.stdout
    assert run_pytest("--pv-mutant", "any").returncode == 4


def test_refused_contract_fails_and_other_tests_run(project: Project) -> None:
    folder = project("small")
    (folder / "contracts/broken.yaml").write_text("schema: pv/1\n")
    (folder / "test_ordinary.py").write_text("def test_ordinary():\n    pass\n")
    done = run_pytest("contracts/broken.yaml", "test_ordinary.py")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "missing key 'metadata'" in done.stdout


def test_a_falsifier_that_no_contract_binds_is_skipped_with_the_reason(project: Project) -> None:
    edit(project("small") / "contracts/counting.yaml", "version: 1.0.0", "version: 1")
    done = run_pytest("falsifiers/", "-k", "limit")
    assert "1 skipped" in done.stdout
    assert "no contract binds falsify_limit; contracts/counting.yaml:2:" in done.stdout


def test_falsifiers_run_with_subject_and_device_and_other_tests_keep_their_settings(project: Project) -> None:
    pytest.importorskip("torch", reason="the CUDA cells of the project ask torch for a device")
    folder = project("small")
    (folder / "test_ordinary.py").write_text(
        "from hypothesis import settings\n"
        "def test_profile():\n"
        "    assert settings.default.max_examples == settings.get_profile('default').max_examples\n"
        "    assert settings.default.database == settings.get_profile(settings.get_current_profile_name()).database\n"
        "    assert settings.get_current_profile_name() != 'pv'\n"
    )
    edit(
        folder / "contracts/counting.yaml",
        "  devices: [cpu, cuda]\n  kills: [epoch-lost]\n",
        "  devices: [cpu, cuda]\n  examples: 150\n",
    )
    done = run_pytest("falsifiers/", "test_ordinary.py", "--hypothesis-show-statistics")
    assert done.returncode == 0, done.stdout
    assert "Stopped because settings.max_examples=150" in done.stdout
    assert "6 passed, 2 skipped" in done.stdout
    assert "no cuda device is visible to torch" in done.stdout
    assert (folder / "falsifiers/.executions.log").read_text() == "5x7 on cpu\n"


def test_claims_share_a_run_of_one_contract_device_and_subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = find_project(tmp_path)
    rows = Rows(project, Workers(project))
    monkeypatch.setattr(rows.workers, "unavailable_reason", lambda device: "")

    def request(id_: str = "F", subject: str = "json", device: str = "cpu", of: str = "c") -> Any:
        claim = falsifier(id_, run="r", subject=Target(subject))
        row: Any = rows.row(BoundClaim(contract(claim, id=of), claim, tmp_path, "falsify"), device, ["run", "subject"])
        assert row.values[1].__name__ == subject
        return row.values[0]

    assert request("G") is request()
    requests = [request(), request(subject="csv"), request(device="cuda"), request(of="other")]
    assert [(r.subject.__name__, r.device, r.contract.id) for r in requests] == [
        *(("json", "cpu", "c"), ("csv", "cpu", "c"), ("json", "cuda", "c"), ("json", "cpu", "other")),
    ]
    rows.close()
    failing = contract(runs=(Run(name="r", location=HERE, callable=Binding("absent.py", "train")),))
    failed = RunRequest(project, failing, "r", "cpu", None, tmp_path)
    with pytest.raises(Unbound) as error:
        failed.read()
    assert failed.error is error.value, "which every predicate of the run gets"


def test_predicates_are_counted_out_and_fail_with_their_point(project: Project) -> None:
    empty_box = (
        '"falsifiers/prove_counting.py::prove_shares_fit", bounds: {total: 0..1, parts: 1..2}, requires: parts > 2'
    )
    empty = f"- {{id: H-EMPTY, rule: r, if_fails: i, predicate: {empty_box}}}\n"
    zero = (
        '- {id: H-ZERO, rule: r, if_fails: i, predicate: "falsifiers/prove_zero.py::prove_zero", bounds: {n: 0..1}}\n'
    )
    folder = project("proofs")
    (folder / "falsifiers/prove_zero.py").write_text("def prove_zero(subject, n):\n    return 0\n")
    edit(folder / "contracts/proofs.yaml", "- id: H-LOOP\n", f"{empty}{zero}- id: H-LOOP\n")
    done = run_pytest("falsifiers/")
    assert "the predicate returned 0" in done.stdout, "a false value other than False passes"
    assert "2 failed, 4 passed, 1 skipped" in done.stdout, done.stdout
    assert "H-EMPTY is vacuous: the box has no point" in done.stdout
    assert "undecided: held at 10,000 of 1,000,000,000,000,000,000,000 points; `pv validate --only H-B" in done.stdout
    broken = run_pytest("falsifiers/", "-k", "shares", "--pv-mutant", "rounded-up")
    assert broken.returncode == 1
    assert "H-SHARE at {'total': 1, 'parts': 2}" in broken.stdout


@pytest.mark.usefixtures("folder")
def test_claims_are_refused_by_a_python_that_removes_assertions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    done = run_pytest()
    assert "3 errors in" in done.stdout, done.stdout
    assert done.stdout.count("Python removes every `assert` (-O, or PYTHONOPTIMIZE=1)") >= 3


TEST = """
import pv
import torch
from trainers import Picky, Raising, Reserved, Unclipped

torch.set_num_threads(2)

class OneThread(Reserved):  # a fork of a process that has used several would wait for them
    def run(self, job):
        assert torch.get_num_threads() == 1
        return super().run(job)

@pv.suite("training-loop", trainer=Unclipped())
def test_unclipped(claim):
    claim()

@pv.suite("training-loop", trainer=OneThread)
def test_reserved(claim):
    claim()

@pv.suite("training-loop", trainer=Picky())
def test_picky(claim):
    claim()

@pv.suite("training-loop", trainer=Raising)
def test_raising(claim):
    claim()
"""


def test_each_claim_is_a_test(project: Project) -> None:
    folder = project("trainers")
    (folder / "test_trainers.py").write_text(TEST)
    chosen = "not picky and (TL-CLIP-001 or TL-CLIP-002 and unclipped or TL-DATA-002 and not unclipped)"
    chosen += " or picky and TL-STEP-001"
    ended = run_pytest("test_trainers.py", "-rfs", "-k", chosen)
    assert "FAILED test_trainers.py::test_unclipped[TL-CLIP-001] - pv.errors.KnownCause" in ended.stdout
    assert "not claimed: it never clips (README, section Clipping)" in ended.stdout
    assert "FAILED test_trainers.py::test_unclipped[TL-CLIP-002]" in ended.stdout
    assert "vacuous: its premise TL-CLIP-001 does not hold" in ended.stdout
    assert ended.stdout.count("Failed: undecided: the loop cannot run the simplest job (") >= 2
    assert "in batches of 2): RuntimeError: Expected" in ended.stdout and "at trainers.py:" in ended.stdout
    assert "of 10 drawn examples were skipped: a window has at most two micro-batches" in ended.stdout
    assert "4 failed, 2 passed, 1 skipped" in ended.stdout


@pytest.fixture
def folder(project: Project) -> Path:
    """Return a new working directory with a project without [tool.pv]."""
    return project("undeclared")


def test_all_claims_are_collected_without_a_configuration(folder: Path) -> None:
    done = run_pytest("-v", "--pv-mutants")
    assert done.returncode == 1
    passed = [line.split("::")[-1].partition(" ")[0] for line in done.stdout.splitlines() if " PASSED" in line]
    assert passed == ["T-EQUATION-cpu", "T-NAMED[tripled]", "T-OTHER-cpu", "falsify_double[T-NAMED-cpu]"]
    assert "the mutant harmless (the sum) survived" in done.stdout
    assert "were not collected" not in done.stdout


SWAPS = """
def imports_nothing(original, n):
    import no_such_package
    return 3 * n
def skips(original, n):
    import unittest
    raise unittest.SkipTest("no device")
"""


def test_a_mutant_is_planted_for_claims_that_are_no_tests_of_pytest(folder: Path) -> None:
    (folder / "contracts/tiny.yaml").rename(folder / "contracts/tiny.yml")
    done = run_pytest("contracts", "--pv-mutant", "tripled", "-rA")
    assert "FAILED contracts/tiny.yml::T-EQUATION-cpu" in done.stdout
    assert "FAILED contracts/tiny.yml::T-OTHER-cpu" in done.stdout


def test_a_mutant_that_could_not_be_judged_fails_as_in_a_validation(folder: Path) -> None:
    (folder / "swaps.py").write_text(SWAPS)
    declared = 'swap: {object: "tiny:double", with: "swaps:%s"}}\n'
    swaps = f"- {{id: absent, fault: a, {declared % 'imports_nothing'}- {{id: skipped, fault: a, {declared % 'skips'}"
    contract = folder / "contracts/tiny.yaml"
    contract.write_text(contract.read_text().replace("kills: [tripled]", "kills: [tripled, absent, skipped]") + swaps)
    done = run_pytest("contracts", "--pv-mutants", "-k", "T-NAMED", "-rA")
    assert "PASSED contracts/tiny.yaml::T-NAMED[tripled]" in done.stdout
    assert "the mutant absent (a) could not be judged: ModuleNotFoundError" in done.stdout
    assert "the mutant skipped (a) could not be judged: no device" in done.stdout
    assert "2 failed, 1 passed" in done.stdout
    assert pv.validate(["contracts"], only=["T-NAMED"]).exit_code == 1


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (trial(reached=frozenset()), "no function of the subject ran"),
        (trial(equation_mutants=EquationMutants(killed=0, total=3)), "it kills none of 3 mutants of its equation"),
    ],
)
def test_claim_that_cannot_fail_does_not_pass(held: Trial, says: str) -> None:
    with pytest.raises(claims.ClaimFailed, match=f"^F is vacuous: {says}"):
        claims._must_hold(held, falsifier())


def refutation(**fields: Any) -> Trial:
    return trial(TrialStatus.REFUTED, counterexample=Counterexample(**EXAMPLE, **fields))


FRAMES = ("a.py:1 in f: x", "pv/suites/s.py:2 in g: y")
EXAMPLE = {"arguments": {"n": 1, "m": [2]}, "exact": True, "error": "2 != 3", "frames": FRAMES, "call": "f(1, [2])"}
UNDER_WAY = Counterexample(arguments={"n": 3}, exact=True, error="")
SEEN = """\
refuted: r
  seen    2 != 3
  with    n = 1
          m = [2]
  call    f(1, [2])
  at      a.py:1 in f: x
  printed hello
"""
AUTHOR = "  author  if this fails: i\n"
RERUN = "  rerun   pv validate --only F"


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (refutation(printed=" hello", explained=True), SEEN + RERUN),
        (trial(TrialStatus.ERROR, detail="broken"), f"error: r\n  seen    broken\n{AUTHOR}{RERUN}"),
        (
            trial(TrialStatus.CRASHED, detail="d", current_arguments=UNDER_WAY),
            f"crashed: r\n  seen    d\n  with    n = 3\n{AUTHOR}{RERUN}",
        ),
    ],
)
def test_failed_claim_is_reported_with_what_is_known(ended: Trial, text: str) -> None:
    with pytest.raises(claims.ClaimFailed) as failed:
        claims._must_hold(ended, falsifier())
    assert str(failed.value) == text


def test_failures_show_the_call_the_place_and_the_values_of_an_assert(folder: Path) -> None:
    (folder / "tiny.py").write_text("def double(n):\n    return 3 * n\n")
    done = run_pytest()
    assert "3 failed" in done.stdout
    assert "  call    double(1)\n  at      tiny.py:1 in double: def double(n):" in done.stdout
    assert "assert 9 == 6" in done.stdout
    assert "  author  if this fails: another factor\n" in done.stdout


def test_claims_outside_the_given_folder_are_named(folder: Path) -> None:
    (folder / "falsifiers").mkdir()
    (folder / "falsify_tiny.py").rename(folder / "falsifiers/falsify_tiny.py")
    edit(folder / "contracts/tiny.yaml", '"falsify_tiny', '"falsifiers/falsify_tiny')
    done = run_pytest("falsifiers")
    assert done.returncode == 0, done.stdout
    says = "pv: 2 of 3 claims were not collected\n  T-EQUATION, T-OTHER: run `pytest contracts/tiny.yaml`"
    assert says in done.stdout
    one = run_pytest("falsifiers/falsify_tiny.py")
    assert "were not collected" not in one.stdout
    other = run_pytest("contracts", "--collect-only", "-q")
    assert "  T-NAMED: run `pytest falsifiers/falsify_tiny.py`" in other.stdout


def test_claims_and_mutants_are_tried_and_no_process_is_left(
    project: Project, marked: Callable[[], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project("small")
    (contract,) = load([folder / "contracts"]).contracts
    by_id = {claim.id: claim for claim in contract.claims}
    workers = Workers(find_project(folder))
    for id_ in ("C-LIMIT", "C-RUN-FIRST"):
        assert workers.trial(contract, by_id[id_], "cpu", None).status is TrialStatus.HELD, id_
        for name in by_id[id_].kills:
            outcome = workers.trial(contract, by_id[id_], "cpu", contract.mutant(name))
            assert outcome.status in (TrialStatus.REFUTED, TrialStatus.RAISED), (id_, name)
    workers.close()
    assert marked() == []
    assert workers.unavailable_reason("cpu") == ""
    monkeypatch.setattr("pv.pytest_plugin.claims.find_spec", lambda name: None)
    assert workers.unavailable_reason("cuda") == "torch is not installed"


def holds(bench: SimpleNamespace) -> None:
    bench.tried.append("holds")


def fails(bench: SimpleNamespace) -> None:
    bench.tried.append("fails")
    raise AssertionError("wrong")


def claim_of_suite(id_: str, test: str, *needs: str, premises: tuple[str, ...] = ()) -> Falsifier:
    test_ = Binding("tests/pytest_plugin/test_plugin.py", test)
    return falsifier(id_, test=test_, options={"needs": needs, "premises": premises})


@pytest.mark.parametrize(
    ("premises", "says", "tried"),
    [
        (("HOLDS",), "", ["holds", "holds", "holds"]),
        (("HOLDS", "FAILS"), "Failed: vacuous: its premise FAILS does not hold", ["holds", "fails"]),
        (("HOLDS", "LACKS"), "", ["holds", "holds", "holds"]),
        (("UNCLAIMED",), "Skipped: not claimed: its premise UNCLAIMED is not claimed: documented", ["fails"]),
    ],
)
def test_each_premise_of_a_claim_is_tried_once_and_must_hold(
    premises: tuple[str, ...], says: str, tried: list[str]
) -> None:
    bench: Any = SuiteBench()
    bench.subject = SimpleNamespace(not_claimed={"UNCLAIMED": "documented"})
    bench.lacks, bench.tried = {"state": "none is saved"}, []
    main = claim_of_suite("MAIN", "holds", "batches", premises=premises)
    by_id = {id_: claim_of_suite(id_, "fails") for id_ in ("FAILS", "UNCLAIMED")}
    by_id |= {"HOLDS": claim_of_suite("HOLDS", "holds"), "LACKS": claim_of_suite("LACKS", "fails", "state")}
    held: dict[str, bool] = {}
    for _ in range(2):
        try:
            SuiteClaim(main, by_id, lambda: bench, held)()
            ended = ""
        except BaseException as outcome:
            ended = f"{type(outcome).__name__}: {outcome}"
        assert ended == says
    assert bench.tried == tried
    with pytest.raises(BaseException, match="not claimed: no state: none is saved"):
        SuiteClaim(by_id["LACKS"], by_id, lambda: bench, held)()


def test_claims_about_one_trainer_share_its_bench_and_premises_with_no_other_trainer() -> None:
    marks: list[Any] = [pv.suite("training-loop", trainer=trainer) for trainer in (object(), object())]
    first, other = ([row.values[0] for row in mark.args[1]] for mark in marks)
    assert len(first) > 2 and len({(id(claim.held), claim.make_bench) for claim in first}) == 1
    assert first[0].held is not other[0].held and first[0].make_bench is not other[0].make_bench
    odd = SimpleNamespace(features={}, tolerance=0.1, not_claimed={"TL-NONE-001": "why"}, run=print)
    claim = pv.suite("training-loop", trainer=odd).args[1][0].values[0]
    with pytest.raises(UnknownClaim, match="`not_claimed` names an unknown claim 'TL-NONE-001'"):
        claim.make_bench()


@pytest.mark.filterwarnings("error")
def test_examples_of_an_earlier_subject_are_not_examples_of_the_next() -> None:
    @given(number=st.integers())
    def both(bench: bool, number: int) -> None:
        if not bench:
            raise SkipTest("no feature")

    attack = leave_out_skipped(both)
    attack(bench=True)
    with pytest.raises(SkipTest, match="no feature"):
        attack(bench=False)
    attack(bench=True)  # without a warning about skipped examples of the second

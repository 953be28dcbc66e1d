"""Claims are tried in workers that end with the session."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.load import load
from pv.engines.trial import TrialStatus
from pv.pytest_plugin.attempts import Attempts
from pv.source.project import find_project


def test_claims_and_mutants_are_tried_and_no_process_is_left(
    project: Callable[[str], Path], marked: Callable[[], list[int]]
) -> None:
    folder = project("small")
    (contract,) = load([folder / "contracts"]).contracts
    claims = {claim.id: claim for claim in contract.claims}
    attempts = Attempts(find_project(folder))
    for id_ in ("C-LIMIT", "C-RUN-FIRST"):
        assert attempts.trial(contract, claims[id_], "cpu", None).status is TrialStatus.HELD, id_
        for name in claims[id_].kills:
            found = attempts.trial(contract, claims[id_], "cpu", contract.mutant(name))
            assert found.status in (TrialStatus.REFUTED, TrialStatus.RAISED), (id_, name)
    attempts.close()
    assert marked() == []
    assert attempts.absent("cpu") == ""


def test_cuda_is_absent_where_torch_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pv.pytest_plugin.attempts.find_spec", lambda name: None)
    assert Attempts(find_project(Path.cwd())).absent("cuda") == "torch is not installed"

"""A point of a box is replayed; what is no point of it is refused."""

import json

import pytest

import pv
from pv.errors import UsageError
from pv.results.outcome import Outcome
from tests.commands.small import edit, result, run
from tests.support.projects import Project


def test_a_point_is_replayed_and_is_no_proof(project: Project) -> None:
    folder = project("proofs")
    point = '{"total": 3, "parts": 2}'
    claim = result(pv.validate(only=["H-SHARE"], replay=point), "H-SHARE")
    says = "the replayed example holds now; no other example was tried"
    assert (claim.outcome, claim.reason) == (Outcome.HELD, says)  # not proved
    edit(folder / "counting.py", "total // parts", "total // (parts - 2)")
    report = pv.validate(only=["H-SHARE"], replay=point)
    claim = result(report, "H-SHARE")
    assert (claim.outcome, claim.reason) == (Outcome.FALSIFIED, "the subject raised on a valid input")
    assert """--replay '{"total": 3, "parts": 2}' --only H-SHARE\n""" in pv.render(report)
    deep = '{"total": ' + "[" * 5000 + "]" * 5000 + "}"
    for odd in (deep, '{"total": {"$int": "x"}, "parts": 1}', '{"total": {"$data": 1}, "parts": 1}'):
        with pytest.raises(UsageError, match=r"invalid example|is not a point of the box of H-SHARE") as refused:
            pv.validate(only=["H-SHARE"], replay=odd)
        assert len(str(refused.value)) < 400
    with pytest.raises(UsageError, match="duplicate key 'total' in the example"):
        pv.validate(only=["H-SHARE"], replay='{"total": 3, "parts": 1, "total": 4}')
    with pytest.raises(UsageError, match="invalid example for H-SHARE: expected a point of its box"):
        pv.validate(only=["H-SHARE"], replay="6.1:AAAA")


BOX = "is not a point of the box of H-SHARE (total 0..50; parts -3..9, where parts > 0)"


POINTS = {
    "{}": "missing total; missing parts",
    '{"total": 3}': "missing parts",
    '{"total": 3, "parts": 10}': "parts is 10, and its bound is int -3..9",
    '{"total": 3, "part": 2}': "missing parts; unknown bound 'part' (did you mean 'parts'?)",
    '{"total": 3, "parts": 0}': "parts > 0 does not hold there",
}


def test_invalid_point_is_refused_with_every_wrong_name(project: Project) -> None:
    project("proofs")
    for point, says in POINTS.items():
        done = run("validate", "--only", "H-SHARE", "--replay", point)
        assert (done.returncode, f"{point} {BOX}: {says}\n" in done.stderr) == (3, True), done.stderr


def test_printed_replay_keeps_integers_beyond_the_range_of_json(project: Project) -> None:
    folder = project("proofs")
    edit(folder / "contracts/proofs.yaml", "{total: 0..50, ", "{total: 9007199254740990..999999999999999999, ")
    edit(folder / "counting.py", "total // parts", "total // parts + (total > 9007199254740992)")
    claim = result(pv.validate(only=["H-SHARE"]), "H-SHARE")
    assert claim.outcome is Outcome.FALSIFIED
    printed = json.dumps(dict(claim.trial.counterexample.arguments))
    assert "$int" in printed
    assert result(pv.validate(only=["H-SHARE"], replay=printed), "H-SHARE").outcome is Outcome.FALSIFIED

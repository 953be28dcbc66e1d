"""Lookups of a contract: runs, mutants, subjects, and the claims that another subject does not make."""

from pathlib import Path
from typing import Any

from pv.contract.claims import Run
from pv.contract.finding import Location
from pv.contract.model import Contract, NotClaimed, OtherSubject
from pv.contract.names import Binding, Target

HERE = Location(Path("c.yaml"))
RUN = Run(name="once", callable=Binding("f.py", "run"), location=HERE, subject=Target("of_run"))


def contract(**fields: Any) -> Contract:
    return Contract(id="c", version="1", description="", location=HERE, strict=True, runs=(RUN,), **fields)


def test_subject_that_claims_as_another_leaves_out_what_that_one_does() -> None:
    part = NotClaimed(falsifiers=("F",), why="it rounds", reference="its manual", places=(HERE,))
    first = OtherSubject(name="first", target=Target("a"), location=HERE, not_claimed=(part,))
    second = OtherSubject(name="second", target=Target("b"), location=HERE, claims_as="first")
    whole = contract(subjects=(first, second))
    assert whole.not_claimed(Target("b")) == whole.not_claimed(Target("a")) == {"F": "it rounds (its manual)"}
    assert whole.not_claimed(Target("c")) == {}


def test_subjects_that_claim_as_each_other_end_the_search() -> None:
    pair = [OtherSubject(name=a, target=Target(a), location=HERE, claims_as=b) for a, b in ("xy", "yx")]
    assert contract(subjects=tuple(pair)).not_claimed(Target("x")) == {}

"""The registry of kinds: every engine that can try a claim, and the one that takes a given claim.

To add an engine, write its module here, add it to `KINDS`, and give its keys to the schema and to the documentation.
"""

from collections.abc import Mapping
from typing import Any

from pv.contract.claims import Falsifier
from pv.engines.kind import Kind
from pv.engines.kinds.equation import EquationKind
from pv.engines.kinds.harness import HarnessKind
from pv.engines.kinds.property import PropertyKind
from pv.engines.kinds.prose import ProseHarnessKind, ProseKind
from pv.engines.kinds.run import ObservedKind, RunKind
from pv.engines.kinds.suite import SuiteKind

__all__ = ["KINDS", "kind_of"]

# A claim is of the first kind that takes it.
_IN_ORDER: tuple[Kind[Any], ...] = (
    HarnessKind(),
    ProseHarnessKind(),
    ObservedKind(),
    RunKind(),
    SuiteKind(),
    PropertyKind(),
    EquationKind(),
    ProseKind(),
)

KINDS: Mapping[str, Kind[Any]] = {kind.name: kind for kind in _IN_ORDER}


def kind_of(claim: Falsifier) -> Kind[Any]:
    """Return the kind of a claim. Every claim has one: a claim that no engine can try is prose."""
    return next(kind for kind in _IN_ORDER if kind.takes(claim))

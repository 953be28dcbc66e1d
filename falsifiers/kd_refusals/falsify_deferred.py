"""Attacks on the deferred faults of a walk: the same errors, raised later, and no number read before.

The subject has `walk`, `Weights` and `raise_fault`, as `reference_trainer.distillation.rows` does.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.support.strategies import HALVES, KdCase, kd_cases

READS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "equal", "unique")
INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
MAXIMA = st.sampled_from([math.nan, math.inf, -math.inf])


class HostReads(TorchDispatchMode):
    """Records operations that wait for the device: a number is read, or a shape depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::")
        indices = args[1] if name.split(".")[0] in INDEXED else []
        if name.split(".")[0] in READS or any(x is not None and x.dtype is torch.bool for x in indices):
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


def _walk(subject: Any, case: KdCase, **options: Any) -> Any:
    weights = subject.Weights(**case.settings)
    return subject.walk(case.student, case.teacher, case.labels, weights, ignore_index=case.ignore_index, **options)


def _message(call: Any) -> str:
    try:
        call()
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing raised"


@given(case=kd_cases(), metrics=st.booleans(), select=st.booleans(), scale=st.sampled_from([None, 0.25, "tensor"]))
def falsify_deferred_walk_reads_nothing(
    subject: Any, case: KdCase, metrics: bool, select: bool, scale: float | str | None
) -> None:
    of = torch.tensor(0.25, dtype=torch.float64) if scale == "tensor" else scale
    with HostReads() as reads:
        rows = _walk(subject, case, deferred=True, metrics=metrics, select=select, scale=of)
    expected = ["nonzero"] if select else []
    assert reads.seen == expected, f"a deferred walk, select={select}, read {reads.seen}; expected {expected}"
    assert rows.fault.shape == () and rows.fault.dtype is torch.int64, f"fault is {rows.fault!r}; expected int64 []"
    assert int(rows.fault) == 0, f"fault is {int(rows.fault)} for valid logits and labels; expected 0"


@given(
    case=kd_cases(logits=HALVES),
    places=st.lists(st.tuples(st.sampled_from(["labels", "student", "teacher"]), st.integers(0, 5)), max_size=3),
    value=MAXIMA,
    label=st.sampled_from([-1, 5, 6, 2**40, -(2**63)]),
    select=st.booleans(),
)
def falsify_deferred_faults_are_the_same_errors(
    subject: Any, case: KdCase, places: list[tuple[str, int]], value: float, label: int, select: bool
) -> None:
    changed = {name: getattr(case, name).clone() for name in ("student", "teacher", "labels")}
    found = [(name, divmod(place % case.labels.numel(), case.labels.shape[1])) for name, place in places]
    for name, at in found:
        changed[name][at] = label if name == "labels" else value
    broken = case.but(**changed)
    fault = int(_walk(subject, broken, deferred=True, select=select, scale=1.0).fault)
    later = _message(lambda: subject.raise_fault(fault, broken.labels, case.student.shape[-1]))
    at_once = _message(lambda: _walk(subject, broken, select=select))
    assert later == at_once, f"deferred, {later!r}; at once, {at_once!r}"
    scored = [(name, at) for name, at in found if broken.scored[at]]
    if not scored:
        assert later == "nothing raised", f"{later!r} for wrong values at unscored positions alone"
        return
    kind = next(kind for kind in ("labels", "student", "teacher") if kind in dict(scored))
    b, t = min(at for name, at in scored if name == kind)
    named = [f"label {label} "] if kind == "labels" else [f"{kind} logits", f"maximum {value},"]
    missing = [word for word in (f"({b}, {t})", *named) if word not in later]
    assert not missing, f"{later!r} lacks {missing}"

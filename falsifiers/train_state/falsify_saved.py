"""Attacks on the saved form of a state: strict JSON that is restored bit by bit, or refused.

The subject is that of `steps`.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.train_state.steps import ANY, assert_same_state
from reference_trainer.distillation.step import MetricSum
from reference_trainer.training.schedule import Event, Position

COUNTS = st.integers(0, 10**20)
SUMS = st.builds(MetricSum, ANY, COUNTS)
POSITIONS = st.builds(
    Position,
    event=st.sampled_from(Event),
    **dict.fromkeys(("epoch", "step", "epoch_step"), COUNTS),
    **dict.fromkeys(("skipping", "stopping"), st.booleans()),
)


@st.composite
def states(draw: st.DrawFn, subject: Any) -> Any:
    """Draw a state with any values of its types."""
    values: dict[str, st.SearchStrategy[Any]] = {
        "position": POSITIONS,
        **dict.fromkeys(("steps", "sequences", "tokens", "logged_step", "evaluated_step"), COUNTS),
        **dict.fromkeys(("initial_loss", "final_loss", "best_loss", "loss"), st.none() | ANY),
        "finite": st.booleans(),
        "elapsed_s": ANY,
        "epoch": SUMS,
        "interval": st.dictionaries(st.text(max_size=3), SUMS, max_size=3),
        "callbacks": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3),
        **dict.fromkeys(("metrics", "validation"), st.dictionaries(st.text(max_size=3), ANY, max_size=3)),
    }
    return subject.TrainState(**{name: draw(value) for name, value in values.items()})


@given(data=st.data())
def falsify_round_trip(subject: Any, data: st.DataObject) -> None:
    drawn = data.draw(states(subject))
    for loss in (drawn.loss, math.nan, math.inf, -math.inf):
        _assert_round_trip(subject, replace(drawn, loss=loss))


def _assert_round_trip(subject: Any, state: Any) -> None:
    text = subject.saved(state)
    assert type(text) is str, f"a saved state is {type(text).__name__}; expected str"
    values = json.loads(text, parse_constant=_no_json)
    assert_same_state("saved and restored", subject.restored(text), state)
    other_order = json.dumps(dict(reversed(values.items())))
    assert_same_state("restored from fields in another order", subject.restored(other_order), state)


def _no_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


FULL = {
    "loss": MetricSum(2.5, 3),
    "hard_loss": MetricSum(1.5, 3),
}


def falsify_changed_text_is_refused(subject: Any) -> None:
    state = subject.fresh()
    state.note(FULL, 2)
    text = subject.saved(state)
    subject.restored(text)
    accepted = []
    for what, change in _changes(json.loads(text)):
        changed = json.loads(text)
        change(changed)
        try:
            subject.restored(json.dumps(changed))
        except ValueError:
            continue
        accepted.append(what)
    assert not accepted, f"a state is restored in spite of {accepted}; expected ValueError for each"


OTHER = ("3", 1.5, True, 3, None, [], {}, "on_step_end")
"""Values of other types, of which a field has at most two."""


def _changes(tree: dict[str, Any]) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Yield changes of a saved state that make it invalid, with their names."""
    for path in _paths(tree):
        *above, name = path
        value, where = _at(tree, path), ".".join(path)
        free = above == ["interval"] or path == ["interval"]  # its names are those of the metrics
        if not free:
            yield f"{where} missing", lambda root, above=above, name=name: _at(root, above).pop(name)
        if isinstance(value, dict) and path != ["interval"]:
            yield f"{where}.other unknown", lambda root, path=path: _at(root, path).update(other=1)
        for other in OTHER:
            if not _same_type(value, other, where):
                change = copy.deepcopy(other)
                yield (
                    f"{where} = {other!r}",
                    lambda root, above=above, name=name, change=change: _at(root, above).update({name: change}),
                )
    yield "other unknown", lambda root: root.update(other=1)


def _same_type(value: Any, other: Any, where: str) -> bool:
    optional = where.endswith("loss") and not where.startswith("interval") and other is None
    event = where == "position.event" and other == "on_step_end"
    named = where in ("interval", "metrics", "validation", "callbacks") and other == {}
    whole = isinstance(value, float) and type(other) is int  # JSON has one kind of number
    return optional or event or named or whole or (type(value) is type(other) and not isinstance(value, str | dict))


def _paths(tree: dict[str, Any]) -> Iterator[list[str]]:
    for name, value in tree.items():
        yield [name]
        if isinstance(value, dict):
            yield from ([name, *path] for path in _paths(value))


def _at(tree: Any, path: list[str]) -> Any:
    for name in path:
        tree = tree[name]
    return tree

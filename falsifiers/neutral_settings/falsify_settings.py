"""Attacks on whole runs: settings that only affect how a run is computed must not change its result.

1. A group of `GROUPS` is one configuration, with several rows of choices of neutral settings (`design.NEUTRAL`).
2. Every row is run and compared with the run of the same configuration with the usual neutral settings.
3. `design.covering_rows` chooses rows greedily, so that few rows have many pairs of choices.

Hypothesis tries an example only once, so a contract with as many examples as groups runs all groups.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from falsifiers.neutral_settings.design import APPROXIMATE, NEUTRAL, TRAINED, Row, changed, covering_rows, usual
from falsifiers.neutral_settings.runs import RunRecord, Workspace, comparable, run_and_record
from falsifiers.support.runs import scratch

GROUPS = list(enumerate(covering_rows(2)[:4]))
CLOSE = 1e-3
"""Largest difference of approximate runs: of metrics, and of all weights relative to the distance that they move.

Models in float64 normalise, and attend with `eager`, in float32, so logits have errors of 1e-7 of their size. The
optimizers divide by the size of a gradient, which amplifies errors where it is small.
"""
OF_A_TEACHER = {"kl_at_1", "kl_at_T", "teacher_loss", "teacher_entropy", "teacher_perplexity", "agreement"}
"""Metrics that a run with stored top-k outputs does not have."""

MEANS = ("loss", "hard_loss", "soft_loss", "kl_at_1", "kl_at_T")
"""Logged metrics that are means over the tokens since the last logged step."""


@given(group=st.sampled_from(GROUPS))
def falsify_neutral_settings_change_nothing(subject: Any, group: tuple[int, list[Row]]) -> None:
    seed, rows = group
    compare_runs(subject, seed, rows)


def compare_runs(subject: Any, seed: int, rows: list[Row]) -> None:
    """Compare the run of each row with the run that has the same configuration and the usual neutral settings."""
    base = usual(rows[0])
    with scratch() as directory:
        workspace = Workspace(directory, base, seed)
        expected = run_and_record(subject, workspace, base)
        moved = distance(expected.weights, expected.initial)
        assert moved > 1e-3, f"the run moves its weights by {moved}, so that nothing is compared"
        workspace.steps = expected.trained["steps_completed"]
        for row in rows:
            seen = run_and_record(subject, workspace, row)
            if message := first_difference(seen, expected):
                smallest, message = _smallest(subject, workspace, row, expected, message)
                choices = {name: row[name] for name in smallest}
                trained = {name: row[name] for name in TRAINED}
                raise AssertionError(f"{choices} changes a run: {message}; the run has {trained}, seed {seed}")
            assert_effects(seen, expected, workspace.steps)


def _smallest(subject: Any, workspace: Workspace, row: Row, expected: RunRecord, message: str) -> tuple[list[str], str]:
    """Return the neutral settings that cause a difference, and the difference.

    Every setting is reset to its usual choice if the difference remains without it.
    """
    for name in changed(row):
        fewer = {**row, name: NEUTRAL[name][0]}
        if other := first_difference(run_and_record(subject, workspace, fewer), expected):
            row, message = fewer, other
    return changed(row), message


def distance(seen: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Return the Euclidean distance between the weights of two models."""
    return math.sqrt(
        sum(float((seen[name].double() - value.double()).square().sum()) for name, value in expected.items())
    )


def first_difference(seen: RunRecord, expected: RunRecord) -> str:
    """Return the first difference of two runs, "" if they are equal.

    Compared are the logged steps, the result, the weights, the written files and the metrics on held-back rows.
    """
    is_exact = not APPROXIMATE & {*changed(seen.row)}
    allowed = 0.0 if is_exact else CLOSE
    leaves_out = OF_A_TEACHER if seen.row["outputs"] == "every token kept" else set[str]()
    lines = comparable(seen.steps)
    wanted = {line["step"]: line for line in comparable(expected.steps)}
    logged, is_usual = [line["step"] for line in lines], seen.row["logged"] == NEUTRAL["logged"][0]
    if is_usual and logged != list(wanted):
        return f"the logged steps are {logged}; expected {list(wanted)}"
    before = 0
    for line in lines:
        other, close = wanted[line["step"]], allowed
        if not is_usual and not {*MEANS} & {*line["metrics"]}:
            continue  # the line has an evaluation only
        if not is_usual:
            other = {**other, "metrics": _means(wanted, before, line["step"])}
            line = {**line, "metrics": {name: line["metrics"].get(name) for name in other["metrics"]}}
            close = max(allowed, 1e-9)
        before = line["step"]
        if message := _unequal(line, other, close, leaves_out):
            return f"in step {line['step']}, {message}"
    if message := _unequal(seen.trained, expected.trained, allowed, set()):
        return f"in the result, {message}"
    if seen.weights.keys() != expected.weights.keys():
        return f"the weights are {sorted(seen.weights)}; expected {sorted(expected.weights)}"
    apart, moved = distance(seen.weights, expected.weights), distance(expected.weights, expected.initial)
    if not apart <= allowed * moved:
        parts = {name: distance({name: seen.weights[name]}, {name: expected.weights[name]}) for name in seen.weights}
        worst = max(parts, key=lambda name: parts[name])
        return f"the weights are off by {apart:.3g} at the end, most in {worst}; the run moves them by {moved:.3g}"
    if is_exact and seen.files != expected.files:
        names = sorted(
            name for name in {*seen.files, *expected.files} if seen.files.get(name) != expected.files.get(name)
        )
        return f"the written files {names} have other bytes"
    if seen.row["evaluated"] == "every step, a row":
        return ""
    drafts = {name for name in seen.held_back if name.startswith("accept")}
    if message := _unequal(seen.held_back, expected.held_back, allowed, leaves_out | drafts):
        return f"on held-back rows, {message}"
    return ""


def _means(lines: Mapping[int, dict[str, Any]], before: int, step: int) -> dict[str, float]:
    """Return the mean metrics over the tokens of the steps after `before` up to `step`."""
    steps = range(before + 1, step + 1)
    tokens = [lines[n]["tokens"] - (lines[n - 1]["tokens"] if n > 1 else 0) for n in steps]
    names = [name for name in MEANS if all(name in lines[n]["metrics"] for n in steps)]
    sums = {name: sum(lines[n]["metrics"][name] * t for n, t in zip(steps, tokens, strict=True)) for name in names}
    return {name: total / sum(tokens) for name, total in sums.items()}


def _unequal(seen: Any, expected: Any, allowed: float, leaves_out: set[str]) -> str:
    """Return a message if two values differ by more than `allowed`, else ""."""
    if isinstance(seen, dict) and isinstance(expected, dict):
        names = [name for name in {**expected, **seen} if name not in leaves_out]
        parts = ((name, _unequal(seen.get(name), expected.get(name), allowed, leaves_out)) for name in names)
        return next((f"{name} {message}" for name, message in parts if message), "")
    if isinstance(seen, tuple) and isinstance(expected, tuple):
        return next(
            (m for one, other in zip(seen, expected, strict=True) if (m := _unequal(one, other, allowed, set()))), ""
        )
    if isinstance(seen, float) and isinstance(expected, float):
        is_equal = math.isclose(seen, expected, rel_tol=allowed, abs_tol=allowed) or (
            seen != seen and expected != expected
        )
    else:
        is_equal = seen == expected
    return "" if is_equal else f"is {seen!r}; expected {expected!r}"


def assert_effects(seen: RunRecord, expected: RunRecord, steps: int) -> None:
    """Assert that every neutral setting had its effect, so that the comparison is not vacuous."""
    row, (before, after) = seen.row, seen.entries
    where = f"with { ({name: row[name] for name in changed(row)}) }"
    assert (seen.forks > 0) == (row["tokens"] == "by workers"), f"{where}, {seen.forks} processes are forked"
    is_kept = row["tokens"].startswith("kept")
    assert bool(before) == (is_kept or "another run" in row["tokens"]), f"{where}, the cache has {before} before"
    assert (after > before) != is_kept, f"{where}, the cache has {before} before and {after} after the run"
    stored = "teacher_outputs_sha256" in seen.manifest
    assert stored == (row["outputs"] != "live"), f"{where}, outputs are read: {stored}"
    repeated = 2 if row["memory"] == "computed again" else 1
    if row["interrupted"] == "no":
        calls = repeated * expected.layer_calls
        assert seen.layer_calls == calls, f"{where}, a layer is called {seen.layer_calls} times; expected {calls}"
    else:
        assert seen.resumed_from, f"{where}, the run is not resumed"
        calls = repeated * expected.layer_calls
        assert seen.layer_calls < calls, f"{where}, a layer is called {seen.layer_calls} times after it is resumed"
    wanted = "eager" if row["attention"] == "eager" else expected.attention
    assert seen.attention == wanted, f"{where}, the attention is {seen.attention}; expected {wanted}"
    checkpoints = len(list(seen.directory.glob("checkpoints/student-step*")))
    assert (checkpoints > 0) == (seen.saves), f"{where}, there are {checkpoints} checkpoints"
    every = {"every step": 1, "every second step": 2}.get(row["logged"], steps + 1)
    logged = [line["step"] for line in seen.steps if "loss" in line["metrics"]]
    assert logged == list(range(every, steps + 1, every)), f"{where}, the steps {logged} of {steps} are logged"
    evaluations = sum("eval/hard_loss" in line["metrics"] for line in seen.steps)
    every = {"at the end": 0, "every second step, drafts": 2}.get(row["evaluated"], 1)
    assert evaluations == (steps // every if every else 0), f"{where}, {evaluations} steps of {steps} are evaluated"
    if row["watched"] != "no":
        # A resumed run repeats the end of the step that was saved.
        calls = steps - seen.resumed_from + (seen.resumed_from > 0)
        assert seen.watched == calls, f"{where}, a watching callback sees {seen.watched} steps; expected {calls}"
        events = [json.loads(line) for line in seen.directory.with_suffix(".trace").read_text().splitlines()]
        assert events[-1]["event"] == "on_train_end", f"{where}, the trace ends with {events[-1]}"

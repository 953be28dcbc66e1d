"""Claims about clipping and about the factor of a loss scaler."""

from collections import defaultdict
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim, numbers, windows_of
from pv.suites.training_run.run import Event, Process, Run, Window, largest_ratio

LARGEST_LIMIT = 1e3
"""Largest limit that a script may choose to clip; with a larger limit, it only measures the norm."""
SMALLEST_LIMIT = 0.01
"""Smallest limit that a script may choose: the usual limits are 0.1 to 10, and the usual loss scales 1,024 and more."""


@claim("TR-CLIP-001", "no gradient was clipped", premises=("TR-GRAD-001", "TR-GRAD-003", "TR-CLIP-003"))
def clipping_comes_last(run: Run, record: Record) -> None:
    """A gradient is clipped too early or too late to have an effect on its step.

    1. The gradient is clipped, and a later backward pass of the same step adds to it.
    2. The gradient is clipped after the step that used it and cleared before the next step, and no clipping of the
       optimizer comes between the last backward pass of a step and the step.

    A limit above the norm, which only measures the norm, is no fault. An early clipping is no fault if another one
    comes after the last backward pass, unless the gradient is clipped after every pass. At least two steps must show
    the fault, since a single one may be the last step of an epoch. In the first case, the finding is a hint if the
    passes are at several lines: the gradient of one loss may be limited before another loss is added. In the second
    case, the finding is a hint if fewer than two of these clippings change the gradient.
    """
    for _process, _optimizer, windows in windows_of(run):
        wrong: list[tuple[Window, Event]] = []
        tried = 0
        for window in windows:
            clips = [c for c in window.clips if c["parameters"] and c["limit"] < float("inf")]
            # A clipping before the first backward pass clips the gradient of the previous step.
            tried += any(window.stale_passes or not window.passes or c["n"] > window.passes[0].n for c in clips)
            # Passes that have added to clipped gradients.
            added = [p.n for p in window.passes if p.onto_clipped]
            if added and clips and not window.stale_passes:
                early = [c for c in clips if window.passes[0].n < c["n"] < added[-1] and _is_clipped(c)]
                late = [c for c in clips if c["n"] > window.passes[-1].n]
                if (early and not late) or len(early) >= len(window.passes) - 1 > 0:
                    wrong.append((window, early[0]))
        record.tried += tried
        if len(wrong) >= 2:
            window, event = wrong[0]
            one_line = all(len({backward.at for backward in step.passes}) == 1 for step, _ in wrong)
            (record.falsify if one_line else record.hint)(
                event["at"],
                f"step {window.step} has {len(window.passes)} backward passes, and the gradient is clipped before the "
                f"last of these passes adds to the gradient ({len(wrong)} of {tried} steps with clipping)",
                "clip once, after the last backward pass of the step",
            )
        useless = [
            (window, event)
            for before, window in pairwise(windows)
            for event in window.clips
            if event["parameters"]
            and (_is_clipped(event) or event["limit"] <= LARGEST_LIMIT)
            and window.passes
            and event["n"] < window.passes[0].n
            and not window.stale_passes
            and event["n"] > before.n
        ]
        # Steps whose last clipping comes after their last backward pass, as it should.
        clipped = {w.n for w in windows if w.passes and any(c["n"] > w.passes[-1].n for c in w.clips)}
        if len(useless) >= 2 and not clipped:
            effective = [(window, event) for window, event in useless if _is_clipped(event)]
            add = record.hint
            if len(effective) >= 2:
                add, useless = record.falsify, effective
                record.tried += len(useless)  # a clipping that changes nothing is no test of the claim
            window, event = useless[0]
            add(
                event["at"],
                f"the gradient is clipped at {event['limit']:g} after step {window.step - 1} and then cleared "
                f"({len(useless)} times): no step uses a clipped gradient",
                "clip between the backward pass and optimizer.step()",
            )


def _is_clipped(clip: Event) -> bool:
    """Return whether a clipping has changed the gradient; True if its norm is not known."""
    return clip["norm"] is None or not clip["norm"] <= clip["limit"]


@claim("TR-CLIP-002", "no gradient was clipped under an enabled GradScaler")
def clipped_gradients_are_unscaled(run: Run, record: Record) -> None:
    """The gradient is clipped while it is multiplied by the loss scale.

    If the script multiplies the limit by the scale as well, the clipping is correct, and the limit divided by the scale
    is a usual limit. For a finding, this quotient must therefore be below 0.01 (`SMALLEST_LIMIT`).
    """
    for process in run.processes:
        for event in process.of("clip"):
            if not any(w.passes and w.passes[-1].scale > 1 for ws in process.windows.values() for w in ws):
                continue
            if event["limit"] == float("inf"):
                continue
            record.tried += 1
            scaled = event["scale"] is not None and 1 < event["scale"]
            if scaled and event["limit"] < SMALLEST_LIMIT * event["scale"] and _is_clipped(event):
                norm = "" if event["norm"] is None else f" of norm {event['norm']:.4g}"
                record.falsify(
                    event["at"],
                    f"a gradient{norm} is clipped at {event['limit']:g} while it is still multiplied by the loss scale "
                    f"{event['scale']:g}: the real limit is {event['limit'] / event['scale']:.3g}",
                    "call scaler.unscale_(optimizer) before the clipping",
                )
                break


@claim("TR-CLIP-003", "no gradient was clipped")
def clipping_covers_parameters(run: Run, record: Record) -> None:
    """No call of the run clips a parameter.

    An empty list may be intended, for a part whose parameters are all frozen, but not an exhausted generator.

    Or the clipped parameters have no gradient in any call: no optimizer holds them, or all calls come before the
    backward pass.

    Or a line clips, between the backward pass and the step of one optimizer, the gradients of another optimizer, which
    are cleared before a step uses them.
    """
    for process in run.processes:
        by_line: dict[str, list[Event]] = defaultdict(list)
        for event in process.of("clip"):
            if event["limit"] < float("inf"):
                by_line[event["at"]].append(event)
        record.tried += sum(map(len, by_line.values()))
        effective = any(event["parameters"] for events in by_line.values() for event in events)
        for at, events in by_line.items():
            # The optimizer that steps after the calls; there must be no other one.
            (stepping, *others) = {_unclipped_optimizer(process, event) for event in events}
            norms = [w.event["norm"] or 0.0 for w in process.windows.get(stepping or 0, ())]
            if len(events) >= 4 and norms and not others and max(norms) > max(event["limit"] for event in events):
                line = process.windows[stepping or 0][0].at
                record.falsify(
                    at,
                    f"all {len(events)} calls clip the gradients of {events[-1]['parameters']} parameters, and these "
                    f"gradients are cleared before a step uses them; the next step, at {line}, applies other "
                    f"gradients, with norms up to {max(norms):.4g}, which are never clipped",
                    "clip the parameters of the optimizer that takes the next step",
                )
        for at, events in by_line.items():
            if not effective and len(events) >= 2:
                used_up = any(event["used_up"] for event in events)
                add = record.falsify if used_up else record.hint
                add(
                    at,
                    f"all {len(events)} calls clip the gradients of 0 parameters"
                    + (": a generator, such as model.parameters(), was used up before" if used_up else ""),
                    "pass model.parameters() in each call, or a list of it: a generator can be read only once",
                )
            without = [
                event for event in events if event["parameters"] and (not event["with_gradient"] or event["norm"] == 0)
            ]
            if len(without) < len(events) or len(events) < 4 or not _is_applied(process):
                continue
            if not any(event["held"] for event in events):
                add = record.falsify if run.complete else record.hint
                add(
                    at,
                    f"all {len(events)} calls clip {events[0]['parameters']} parameters that are in no optimizer and "
                    "have no gradient: these parameters belong to another model, or to a copy",
                    "clip the parameters of the model that is trained",
                )
            elif all(event["held"] == event["parameters"] for event in events) and _are_all_held(process, events):
                record.falsify(
                    at,
                    f"in all {len(events)} calls, none of the {events[0]['parameters']} parameters has a gradient yet, "
                    "but they have gradients at the steps: the call comes before the backward pass",
                    "clip between the last backward pass and optimizer.step()",
                )


def _unclipped_optimizer(process: Process, clip: Event) -> int | None:
    """Return the optimizer that takes the next step after a clipping, if its gradients are never clipped.

    Return None otherwise, if no optimizer holds the clipped parameters, if the optimizer has a backward pass between
    the clipping and its step, or if the next step of an optimizer whose gradients are clipped uses these gradients.
    """
    following = [(w.n, number, w) for number, windows in process.windows.items() for w in windows if w.n > clip["n"]]
    if not following or not clip["held"]:
        return None
    _, number, window = min(following, key=lambda entry: entry[0])
    covered = [int(name) for name, (count, *_) in clip["covers"].items() if count]
    if number in covered or not window.passes or window.passes[-1].n > clip["n"]:
        return None
    if any(event["parameters"] for other in process.windows[number] for event in other.clips):
        return None
    for other in covered:
        after = next((w for w in process.windows.get(other, ()) if w.n > clip["n"]), None)
        if after is not None and after.passes and after.passes[0].n < clip["n"]:
            return None  # the clipped gradients are in the next step
    return number


def _is_applied(process: Process) -> bool:
    """Return whether every step of every optimizer applies a gradient."""
    windows = [window for windows in process.windows.values() for window in windows]
    return bool(windows) and all(window.event["norm"] for window in windows)


def _are_all_held(process: Process, events: list[Event]) -> bool:
    """Return whether there is one optimizer and all clippings get all of its parameters.

    If a clipping gets only some parameters, the steps may train the other ones.
    """
    optimizers = list(process.of("optimizer"))
    return len(optimizers) == 1 and all(event["parameters"] == optimizers[0]["parameters"] for event in events)


@claim("TR-CLIP-004", "no gradient of a model that FullyShardedDataParallel shards was clipped")
def shards_are_clipped_by_the_whole_norm(run: Run, record: Record) -> None:
    """Every rank clips its shard by the norm of the shard: ranks multiply parts of one gradient by different factors.

    This changes the direction of the gradient. In a correct run, all ranks clip by the norm of the whole gradient.
    """
    columns = [[e for e in process.of("clip") if e.get("flat_shards")] for process in run.ranks]
    for at in dict.fromkeys(event["at"] for column in columns for event in column):
        of_line = [[e for e in column if e["at"] == at and e["kind"] == "clip_grad_norm_"] for column in columns]
        rows = list(zip(*of_line, strict=False))
        record.tried += len(rows)
        wrong = []
        for row in rows:
            norms = [event["norm"] for event in row]
            if None not in norms and all(norm > 0 for norm in norms):
                # `clip_grad_norm_` multiplies by limit / norm if this is below 1. Equal factors do no harm.
                factors = [min(1.0, row[0]["limit"] / norm) for norm in norms]
                if largest_ratio(factors) > 1.01:
                    wrong.append((norms, factors))
        if len(wrong) >= 2:
            record.falsify(
                at,
                f"each rank clips its shard of the gradient by the norm of this shard: norms {numbers(wrong[0][0])} "
                f"give factors {numbers(wrong[0][1])} ({len(wrong)} of {len(rows)} clippings)",
                "call model.clip_grad_norm_(max_norm) of the FullyShardedDataParallel model",
            )


@claim("TR-SCALE-001", "no loss was scaled by a GradScaler")
def applied_gradients_are_unscaled(run: Run, record: Record) -> None:
    """The optimizer steps with a gradient that is still multiplied by the loss scale.

    If the script divides the gradients itself, they count as modified, and the step is left out. A handwritten update
    may divide in the expression that uses the gradient. This is not observed, so such updates are not judged. A
    user-defined optimizer may divide inside its step, so the finding is then a hint.

    Layers that compute in float16 under autocast without any loss scale are a hint: gradients below 6e-8, the smallest
    positive number of float16, become 0.
    """
    for process in run.processes:
        halves = [e for e in process.of("parameters") if e["autocast"].get("float16")]
        windows = [window for windows in process.windows.values() for window in windows if window.passes]
        unscaled = all(backward.scale == 1 for window in windows for backward in window.passes)
        if halves and len(windows) >= 4 and unscaled and not any(window.modified for window in windows):
            event = halves[-1]
            record.hint(
                windows[0].passes[0].at,
                f"{event['autocast']['float16']} layers of {process.kinds.get(event['model'])} compute in float16 "
                f"under autocast, and the loss is not scaled in any of {len(windows)} steps: gradients below 6e-8 "
                "become 0",
                "use a GradScaler, or bfloat16",
            )
    for process, optimizer, windows in windows_of(run):
        created = [event for event in process.of("optimizer") if event["optimizer"] == optimizer]
        if any(event.get("by_hand") for event in created):
            continue
        # `scaler.step` divides by the scale and skips infinities; `unscale_` and a division by hand divide as well.
        scaled = [w for w in windows if w.passes and w.passes[-1].scale > 1]
        record.tried += len(scaled)
        wrong = [w for w in scaled if not w.unscaled and not w.event["by_scaler"] and not w.modified]
        if wrong:
            window = wrong[0]
            (record.falsify if all(event["builtin"] for event in created) else record.hint)(
                window.at,
                f"step {window.step} applies a gradient that is still multiplied by the loss scale "
                f"{window.passes[-1].scale:g}, without a check for infinities ({len(wrong)} of {len(scaled)} steps)",
                "call scaler.step(optimizer) and scaler.update() instead of optimizer.step()",
            )

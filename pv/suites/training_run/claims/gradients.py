"""Claims about the gradients of a step: they are cleared, new, complete, and finite."""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise, permutations

from pv.suites.training_run.claim import Record, claim, is_finite, numbers, windows_of
from pv.suites.training_run.claims.data import ends_of_passes
from pv.suites.training_run.run import Event, Pass, Process, Run, Window


@claim("TR-GRAD-001", "no optimizer took two steps with backward passes", premises=("TR-RANK-003",))
def gradients_are_cleared_between_steps(run: Run, record: Record) -> None:
    """The gradient of a step contains backward passes that an earlier step has applied already.

    A script that keeps a part of its gradients on purpose, such as a decayed sum, changes the gradients itself. Version
    counters show such a change, and the step is left out. If a script copies the gradients of a model to master
    weights, the gradients of the model are judged.
    """
    for process, optimizer, windows in windows_of(run):
        _judge_master_weights(record, process, optimizer, windows)
        pairs = [window for _, window in pairwise(windows) if window.passes and not window.modified]
        record.tried += len(pairs)
        wrong = [window for window in pairs if window.stale_passes]
        if wrong:
            window = wrong[0]
            passes = "backward pass" if len(window.stale_passes) == 1 else "backward passes"
            record.falsify(
                window.at,
                f"the gradient of step {window.step} still contains {len(window.stale_passes)} {passes} that step "
                f"{window.step - 1} or an earlier step has already applied: gradients are not cleared between the "
                f"steps ({len(wrong)} of {len(pairs)} steps)",
                "call optimizer.zero_grad() once before the first backward pass of every step",
            )


def _judge_master_weights(record: Record, process: Process, optimizer: int, windows: list[Window]) -> None:
    """Judge whether the gradients that a script copies to master weights are cleared between the steps."""
    pairs = [(a, b) for a, b in pairwise(windows) if _is_copy(a) and _is_copy(b) and not b.passes]
    # By step: its first backward pass whose gradients are copied.
    firsts = [
        (
            window,
            next((e for e in process.of("backward") if _copies(e, optimizer) and before.n < e["n"] < window.n), None),
        )
        for before, window in pairs
    ]
    record.tried += sum(first is not None for _, first in firsts)
    wrong = [(window, first) for window, first in firsts if first is not None and first["copied"][str(optimizer)]]
    if wrong:
        window, first = wrong[0]
        record.falsify(
            first["at"],
            f"the gradient of step {window.step} is copied from the gradients of a model, and this backward pass adds "
            f"to the gradients that step {window.step - 1} has already used: the gradients of the model are not "
            f"cleared between the steps ({len(wrong)} of {len(firsts)} steps)",
            "clear the gradients of the model, too, in every step: model.zero_grad()",
        )


def _is_copy(window: Window) -> bool:
    """Return whether the gradients of a step are a multiple of the gradients of a model's weights."""
    residual = window.event.get("copied", [math.inf])[0]
    return is_finite(residual) and residual < 0.02


def _copies(event: Event, optimizer: int) -> bool:
    """Return whether a backward pass reaches weights whose gradients are copied into an optimizer."""
    return str(optimizer) in event.get("copied", {})


@claim("TR-GRAD-002", "no optimizer took two steps with backward passes")
def gradients_are_applied_once(run: Run, record: Record) -> None:
    """There is no backward pass between two steps, and both gradients have exactly the same norm.

    A gradient that is computed in another way (autograd.grad, NumPy, a CUDA graph) has another norm. A line search
    applies one gradient several times, but puts the weights back in between.
    """
    for _process, _optimizer, windows in windows_of(run):
        if not any(window.passes for window in windows):
            continue
        applied = [window for window in windows if window.event["gradients"] and not window.modified]
        record.tried += len(applied)
        # The norms of two gradients are equal to the last bit only if the gradients are the same.
        same = {
            id(w)
            for before, w in pairwise(windows)
            if w.event["norm"] == before.event["norm"]
            and w.event["norm"]
            and w.event.get("digest_before", before.event["digest"]) == before.event["digest"]
        }
        wrong = [window for window in applied if not window.passes and id(window) in same]
        if wrong:
            record.falsify(
                wrong[0].at,
                f"step {wrong[0].step} applies the same gradient as the previous step: there is no backward pass "
                f"between these steps ({len(wrong)} of {len(applied)} steps)",
                "call optimizer.step() once for each gradient",
            )


@claim("TR-GRAD-003", "no optimizer step followed a backward pass")
def gradients_arrive(run: Run, record: Record) -> None:
    """All gradients are missing or 0 at a step.

    The script must have cleared the gradients between the backward pass and the step: otherwise, they may be 0 because
    the loss is 0.

    Or no parameter of an optimizer ever has a gradient, although there are backward passes between all of its steps,
    and no other optimizer takes a step between its first and its last step. The parameters belong to models that run,
    and keep their values, which rules out updates by hand beside an optimizer that only serves the schedule.
    """
    for process, optimizer, windows in windows_of(run):
        last, arrived, lost = -1, 0, []
        for window in windows:
            reached = [e for e in process.of("backward") if last < e["n"] < window.n and str(optimizer) in e["reached"]]
            last = window.n
            if not reached:
                continue
            arrived += 1
            if window.cleared and not window.event["norm"] and not window.modified:
                lost.append((window, reached[-1]["at"]))
        record.tried += arrived
        # A single step may be left out on purpose, after a probe of the gradient.
        if lost and 2 * len(lost) >= arrived:
            window, line = lost[0]
            record.falsify(
                window.at,
                f"step {window.step} has no gradient: gradients are cleared between the backward pass at {line} and "
                f"the step ({len(lost)} of {arrived} steps)",
                "call optimizer.zero_grad() before the backward pass, not after it",
            )
        missed = _missed_passes(process, optimizer, windows)
        record.tried += len(missed)
        if missed:
            lines = sorted({e["at"] for e in missed})
            record.falsify(
                missed[0]["at"],
                f"no parameter of the optimizer has a gradient in any of its {len(windows)} steps ({windows[0].at}), "
                f"although backward() is called before each of them ({', '.join(lines[:3])}): the loss does not "
                "depend on these parameters, and no weight of the optimizer changes",
                "call backward() on the loss itself, not on a new tensor of its value, and pass the parameters of the "
                "model that computes the loss to the optimizer",
            )


def _missed_passes(process: Process, optimizer: int, windows: list[Window]) -> list[Event]:
    """Return the backward passes between the steps of an optimizer if none of them ever reaches its parameters."""
    digests = {window.event["digest"] for window in windows} | {windows[0].event.get("digest_before")} - {None}
    held = process.held.get(optimizer)
    if len(windows) < 4 or len(digests) != 1 or None in digests or held is None or held["outside"]:
        return []
    if any(window.event["gradients"] or window.event["modified"] for window in windows):
        return []
    first, last = windows[0].n, windows[-1].n
    others = [window for number, other in process.windows.items() if number != optimizer for window in other]
    if any(first < window.n < last for window in others):
        return []
    passes = [event for event in process.of("backward") if event["n"] < last]
    between = [[event for event in passes if a.n < event["n"] < b.n] for a, b in pairwise(windows)]
    return [event for group in between for event in group] if all(between) else []


@claim("TR-GRAD-004", "no optimizer step followed a backward pass", premises=("TR-GRAD-001", "TR-GRAD-003"))
def every_gradient_is_used(run: Run, record: Record) -> None:
    """Gradients of backward passes are cleared before a step uses them.

    Some scripts compute a gradient only to measure it, the backward pass of a generator leaves gradients in its
    discriminator, and a loss scaler may skip the step. Two cases falsify the claim; all others are hints:

    1. The loss is divided by the number of backward passes per step, all from one line, so the script intends a mean
       over the passes; but the step uses only one pass, and the script does not change the gradients itself.
    2. In several epochs, the last micro-batches do not fill a step, and their gradients are cleared. If a schedule is
       planned for exactly the number of steps, the finding is a hint: the last micro-batches may be dropped on purpose,
       as by drop_last.
    """
    for process, optimizer, windows in windows_of(run):
        used = {p.n for group in process.windows.values() for window in group for p in window.passes}
        reaching = [e for e in process.of("backward") if str(optimizer) in e["reached"] and e["n"] < windows[-1].n]
        record.tried += len(reaching)
        # Equal version counters of the parameters: no step, by an optimizer or by hand, came between the two passes.
        # A loss scaler skips a step whose gradient is not finite.
        ends = sorted([(w.n, False) for w in windows] + [(e["n"], True) for e in process.of("skipped_step")])
        skipped = {e["n"] for e in reaching if ends[bisect_right(ends, (e["n"], True))][1]}
        lost = [
            event
            for event, following in pairwise(reaching)
            if event["n"] not in used | skipped
            and following["reached"][str(optimizer)]["written"] == event["reached"][str(optimizer)]["written"]
        ]
        rests = _rests_of_epochs(process, windows, lost)
        if rests:
            counts = [len(window.passes) for window in windows]
            planned = [max(event["planned"].values(), default=0) for event in process.of("scheduler")]
            (record.hint if len(windows) in planned else record.falsify)(
                rests[0][0]["at"],
                f"a step has {max(counts)} backward passes, and the last {len(rests[0])} of an epoch do not fill a "
                f"step: their gradients are cleared before a step uses them, in {len(rests)} epochs",
                "also take a step after the last batch of an epoch, or continue the step in the next epoch",
            )
        # At least two passes and a quarter of all: fewer may be occasional measurements of a gradient.
        elif len(lost) * 4 >= len(reaching) and len(lost) >= 2:
            divided = _divided_by(windows, reaching)
            add = record.falsify if divided else record.hint
            add(
                lost[0]["at"],
                f"the gradients of {len(lost)} of {len(reaching)} backward passes are cleared before a step uses them"
                + (f"; the loss is divided by the {divided} backward passes of a step" if divided else ""),
                "call zero_grad() once for each optimizer step, not for each micro-batch",
            )


def _rests_of_epochs(process: Process, windows: list[Window], lost: list[Event]) -> list[list[Event]]:
    """Return lost backward passes by epoch if they are the last ones of each epoch and do not fill a step; else [].

    All steps must have the same number of passes, at the same line and with batches of the same loader. Otherwise a
    lost pass may be one that only measures a gradient.
    """
    steps = [window for window in windows if window.passes]
    places = {(backward.at, backward.loader) for window in steps for backward in window.passes}
    ((count, times),) = Counter(len(window.passes) for window in steps).most_common(1) if steps else [(0, 0)]
    if count < 2 or times < len(steps) or len(places) != 1 or not lost:
        return []
    ((at, loader),) = places
    groups: dict[int, list[Event]] = defaultdict(list)
    for event in lost:
        inputs = {process.forwards[n]["loader"] for n in event["forwards"] if n in process.forwards}
        if event["at"] != at or inputs != {loader} or loader is None:
            return []
        groups[next(number for number, window in enumerate(windows) if window.n > event["n"])].append(event)
    ends = [event["n"] for event in ends_of_passes(process) if event["loader"] == loader]
    for number, group in groups.items():
        following = windows[number].passes
        if len(group) >= count or not following or not any(group[-1]["n"] < n < windows[number].n for n in ends):
            return []
    return list(groups.values()) if len(groups) >= 2 else []


def _divided_by(windows: list[Window], reaching: list[Event]) -> int:
    """Return the number of backward passes per step, in most steps, if the loss of each pass is divided by this number.

    Return 0 if the number is 1, if the passes are at several lines, if the loss has another weight or an unknown one,
    or if the script has written the gradients itself, such as a sum over passes.
    """
    counts = []
    for before, window in pairwise(windows):
        lines = [event["at"] for event in reaching if before.n < event["n"] < window.n]
        losses = [loss for backward in window.passes for loss in backward.losses]
        if len(window.passes) != 1 or len(losses) != 1 or len(set(lines)) != 1 or window.modified:
            return 0
        total = losses[0].weight * losses[0].elements
        counts.append(len(lines) if abs(total * len(lines) - 1) < 1e-3 else 0)
    # The last step of an epoch may have fewer passes.
    (count, times) = Counter(counts).most_common(1)[0] if counts else (0, 0)
    return count if count > 1 and times >= 3 and 2 * times > len(counts) else 0


@claim("TR-NAN-001", "no gradient was applied", premises=("TR-SCALE-001",))
def applied_gradients_are_finite(run: Run, record: Record) -> None:
    """An infinite or NaN gradient is applied. The weights are not finite afterwards, so the step was not skipped.

    Or a step with a finite gradient makes finite weights NaN or infinite. If the weights are finite after the next
    step, the script has put back earlier weights.
    """
    for _process, _optimizer, windows in windows_of(run):
        last: float | None = None
        for window, following in zip(windows, [*windows[1:], None], strict=True):
            norm, digest = window.event["norm"], window.event["digest"]
            before, last = last, digest
            if norm is None or window.event["by_scaler"]:
                continue
            record.tried += 1
            later = None if following is None else following.event["digest"]
            if digest is None or is_finite(digest) or (later is not None and is_finite(later)):
                continue
            first = window.event.get("digest_before") if before is None else before
            if is_finite(norm) and is_finite(first or 0.0):
                half = window.event.get("moved", {}).get("halves", (0, 0))[0]
                record.falsify(
                    window.at,
                    f"step {window.step} has a finite gradient, of norm {norm:.4g}, and the weights are not finite "
                    "after it" + ("; they are in half precision, in which eps may round to 0" if half else ""),
                    "keep the optimizer's weights and states in float32",
                )
                break
            if not is_finite(norm):
                values = [loss.value for p in window.passes for loss in p.losses]
                record.falsify(
                    window.at,
                    f"step {window.step} applies a gradient of norm {norm}, and the weights are not finite after it; "
                    f"the losses of the step are {numbers(values)}",
                    "raise an error, or skip the step, if the loss or the norm of the gradient is not finite",
                )
                break


@claim("TR-GRAD-005", "no optimizer stepped after another one that trains against it", premises=("TR-GRAD-001",))
def no_gradient_of_the_opponent(run: Run, record: Record) -> None:
    """The step of a generator contains the gradient of its critic's loss.

    An encoder that two losses train jointly looks similar. The two models count as adversaries only if

    - the critic's loss has opposite gradients at the critic's outputs for data and for generated samples,
    - the generator's loss has a gradient at the outputs for generated samples that is opposite to the critic's, and
    - the gradient of the generator's loss in the critic is discarded.

    A generator that follows both losses cannot be intended.
    """
    for process in run.processes:
        forwards = {event["n"]: event for event in process.of("forward")} if len(process.windows) > 1 else {}
        used = {(o, p.n) for o, windows in process.windows.items() for w in windows for p in w.passes}
        reached = {e["n"]: {int(name) for name in e["reached"]} for e in process.of("backward")}

        def pulls(
            passes: Iterable[Pass], generated: bool, model: int, forwards: Mapping[int, Event] = forwards
        ) -> list[float]:
            """Return the sums of the gradients at a model's outputs, for generated samples or for data."""
            return [
                pull
                for backward in passes
                for position, pull in backward.pulls.items()
                if forwards[position]["model"] == model and forwards[position]["from_graph"] == generated
            ]

        for critic, generator in permutations(process.windows, 2):
            # Every ordered pair of optimizers is tried as critic and generator; `from_graph` marks generated inputs.
            compared, wrong = 0, []
            for window in process.windows[generator]:
                last = window.passes[-1] if window.passes else None
                if last is None or reached[last.n] != {critic, generator} or (critic, last.n) in used:
                    continue
                step = next((w for w in reversed(process.windows[critic]) if w.n < last.n), None)
                if step is None:
                    continue
                for model in {forwards[position]["model"] for position in last.pulls}:
                    data, fake = (pulls(step.passes, generated, model) for generated in (False, True))
                    # If the critic's loss does not reach the generator, generated samples are detached.
                    by_generator = pulls([last], True, model)
                    compared += bool(by_generator and data)
                    # The critic's loss has gradients of opposite signs at the outputs for data and for generated
                    # samples. The generator's loss reverses the sign at the outputs for generated samples.
                    apart = data and fake and by_generator and max(data) * max(fake) < 0 and min(data) * min(fake) < 0
                    against = apart and max(fake) * max(by_generator) < 0 and min(fake) * min(by_generator) < 0
                    shared = {p.n for p in window.passes[:-1]} & {p.n for p in step.passes}
                    if against and shared:
                        wrong.append((window, step, max(fake), max(by_generator)))
            record.tried += compared
            if len(wrong) >= 3 and 2 * len(wrong) >= len(process.windows[generator]):
                window, step, fake_pull, pull = wrong[0]
                record.falsify(
                    window.at,
                    f"the gradient of step {window.step} also contains the backward pass at {step.passes[-1].at}, "
                    "whose loss trains the opponent: at the opponent's output for generated samples, the gradient of "
                    f"that loss sums to {fake_pull:.3g}, and the gradient of this step's loss to {pull:.3g} "
                    f"({len(wrong)} of {len(process.windows[generator])} steps)",
                    "detach generated samples in the opponent's loss (fake.detach()), or call zero_grad() of this "
                    "optimizer before its own backward pass",
                )


@claim("TR-GRAD-006", "no loss used a sample of a distribution whose parameters need a gradient")
def samples_carry_gradients(run: Run, record: Record) -> None:
    """`sample()` is used in place of `rsample()`: the loss gives no gradient to the parameters of the distribution.

    Not a fault: a score-function estimator (REINFORCE, wake-sleep), which calls `log_prob` of a distribution that the
    same line constructs; and samples for an environment or a picture, which are the input of no layer with a backward
    pass.

    If the parameters get no other gradient, they may be unused on purpose, and the finding is a hint. If they get a
    gradient from a handwritten log-density of the samples or of data, the estimator is intended, and the finding is a
    hint, too. It is no hint if this gradient comes from a divergence from a centered prior, which does not depend on
    the samples: the gradient at the mean is then a multiple of the mean.
    """
    for process in run.processes:
        last = next((event for event in reversed(list(process.of("distributions")))), None)
        for source in last["sources"] if last is not None else ():
            if not source["used"] and not source["rsamples"]:
                continue
            record.tried += source["samples"] + source["rsamples"]
            if source["rsamples"] or source["log_probs"] or source["samples"] < 3:
                continue
            # Rounding in half precision changes a cosine by less than 0.1 %.
            prior = source.get("alignment") is not None and source["alignment"] > 0.999
            add = record.falsify if source["arrived"] and prior else record.hint
            add(
                source["sampled_at"],
                f"{source['kind']}.sample() gives no gradient to the parameters of the distribution constructed at "
                f"{source['at']}: {source['used']} backward passes through layers that use the sample end at the sample"
                + ("; the parameters get a gradient only from another term of the loss" if source["arrived"] else ""),
                "call rsample(), or use log_prob() of the sample in the loss",
            )


@claim("TR-GRAD-007", "no loss of torch.nn.functional was computed in four backward passes")
def every_loss_is_used(run: Run, record: Record) -> None:
    """Before a backward pass, one line computes losses of several batches, and only the last loss gets a gradient.

    A loss that is selected among candidates, or skipped, is not the last one every time, or the number of losses
    varies. Losses of one batch at several depths have the same inputs. All losses but the last must have been freed
    without a gradient. If the script has read a number from a loss since the previous backward pass, the finding is a
    hint. It is also a hint if the pass reaches several calls of one model: the first parts of a sequence may only give
    the state for the last part.
    """
    for process in run.processes:
        passes: dict[tuple[int, str], list[tuple[int, bool, Event]]] = defaultdict(list)
        for event in process.of("backward"):
            for key, at in {(loss["key"], loss["at"]) for loss in event["losses"]}:
                rows = [loss for loss in event.get("computed", ()) if loss["key"] == key]
                inputs = {loss["input"] for loss in rows} - {0}
                *before, last = [loss["gone"] for loss in rows] or [False]
                overwritten = all(before) and not last and len(inputs) == len(rows) and event["reached"]
                calls = Counter(process.forwards[n]["model"] for n in event["forwards"] if n in process.forwards)
                is_unsure = any(loss["shown"] for loss in rows) or max(calls.values(), default=0) > 1
                passes[key, at].append((len(before) if overwritten else 0, is_unsure, event))
        for (_, at), rows_of in passes.items():
            examined = rows_of[:EXAMINED_PASSES]
            if len(examined) < 4:
                continue
            record.tried += len(examined)
            ((count, times),) = Counter(count for count, *_ in examined).most_common(1)
            # By chance, the last of `count + 1` losses would be used `times` times with probability (count + 1)^-times.
            if count and times >= 4 and 5 * times >= 4 * len(examined) and (count + 1) ** times >= 200:
                add = record.hint if any(is_unsure for _, is_unsure, _ in examined) else record.falsify
                add(
                    at,
                    f"before {times} of {len(examined)} backward passes this line computes {count + 1} losses, of "
                    f"different inputs: the pass at {examined[-1][-1]['at']} uses only the last loss, and the other "
                    f"{count} are overwritten without a gradient",
                    "call backward() on every loss, inside the loop, or add them up first",
                )


EXAMINED_PASSES = 12
"""Number of first backward passes that are examined; the observer records losses only in the first steps."""

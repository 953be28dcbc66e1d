"""Claims about the gradients of a step: fresh, its own, complete, and finite."""

from itertools import pairwise

from pv.suites.training_run.record import Record, claim, is_finite, numbers, windows_of
from pv.suites.training_run.run import Run


@claim("TR-GRAD-001", "no optimizer took two steps with backward passes")
def cleared_between_steps(run: Run, record: Record) -> None:
    """A window that reaches back over the step before.

    A script that keeps a part of its gradients on purpose changes them by itself, which is seen.
    """
    for _process, _optimizer, windows in windows_of(run):
        pairs = [window for _, window in pairwise(windows) if window.passes and not window.modified]
        record.tried += len(pairs)
        wrong = [window for window in pairs if window.carried]
        if wrong:
            window = wrong[0]
            record.falsify(
                window.at,
                f"the gradient of step {window.step} contains {len(window.carried)} backward passes that step "
                f"{window.step - 1} or an earlier one has used: gradients are not cleared between these steps "
                f"({len(wrong)} of {len(pairs)} steps)",
                "call optimizer.zero_grad() once before the first backward pass of every step",
            )


@claim("TR-GRAD-002", "no optimizer took two steps with backward passes")
def own_backward_pass(run: Run, record: Record) -> None:
    """A step without a new backward pass, and with the very norm of the step before: the same gradient.

    A gradient that is computed in another way (autograd.grad, NumPy, a CUDA graph) has another norm.
    """
    for _process, _optimizer, windows in windows_of(run):
        if not any(window.passes for window in windows):
            continue
        rest = [window for window in windows if window.event["gradients"] and not window.modified]
        record.tried += len(rest)
        same = {id(w) for before, w in pairwise(windows) if w.event["norm"] == before.event["norm"] and w.event["norm"]}
        wrong = [window for window in rest if not window.passes and id(window) in same]
        if wrong:
            record.falsify(
                wrong[0].at,
                f"step {wrong[0].step} applies the gradient of the step before again: no backward pass came "
                "between them "
                f"({len(wrong)} of {len(rest)} steps)",
                "take one optimizer step for each gradient",
            )


@claim("TR-GRAD-003", "no optimizer step followed a backward pass")
def gradients_arrive(run: Run, record: Record) -> None:
    """All gradients of a step are gone.

    A loss of 0 has a gradient of 0, too, so gradients must have been cleared between backward pass and step.
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
            window, place = lost[0]
            record.falsify(
                window.at,
                f"step {window.step} has no gradient: gradients were cleared after the backward pass at "
                f"{place}, and before the step ({len(lost)} of {arrived} steps)",
                "call optimizer.zero_grad() before the backward pass, not between it and the step",
            )


@claim("TR-GRAD-004", "no optimizer step followed a backward pass", premises=("TR-GRAD-001", "TR-GRAD-003"))
def none_thrown_away(run: Run, record: Record) -> None:
    """Backward passes whose gradients are cleared before a step uses them.

    Probes of a gradient do this on purpose. A generator's pass leaves gradients in its discriminator, too.
    """
    for process, optimizer, windows in windows_of(run):
        used = {p.n for each in process.windows.values() for window in each for p in window.passes}
        reaching = [e for e in process.of("backward") if str(optimizer) in e["reached"] and e["n"] < windows[-1].n]
        record.tried += len(reaching)
        lost = [
            event
            for event, following in pairwise(reaching)
            if event["n"] not in used
            and following["reached"][str(optimizer)]["written"] == event["reached"][str(optimizer)]["written"]
        ]
        if len(lost) * 4 >= len(reaching) and len(lost) >= 2:
            record.hint(
                lost[0]["at"],
                f"the gradients of {len(lost)} of {len(reaching)} backward passes are cleared before a step uses them",
                "clear gradients once for each step, not for each micro-batch",
            )


@claim("TR-NAN-001", "no gradient was applied", premises=("TR-SCALE-001",))
def finite_gradients(run: Run, record: Record) -> None:
    """A gradient that is not finite was applied. The weights show that the optimizer did not leave the step out."""
    for _process, _optimizer, windows in windows_of(run):
        for window in windows:
            norm, digest = window.event["norm"], window.event["digest"]
            if norm is None or window.event["by_scaler"]:
                continue
            record.tried += 1
            if not is_finite(norm) and digest is not None and not is_finite(digest):
                values = [loss.value for p in window.passes for loss in p.losses]
                record.falsify(
                    window.at,
                    f"step {window.step} applies a gradient of norm {norm}; the losses of the step are "
                    f"{numbers(values)}, "
                    "and the weights are not finite after the step",
                    "raise, or leave the step out, if the loss or the norm of the gradient is not finite",
                )
                break

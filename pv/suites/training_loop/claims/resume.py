"""Claims about runs that are resumed, killed during a save, or prolonged.

A run is cut after every step: it is resumed from the checkpoint of this step, and must continue and end like the
uninterrupted run. A killed run must leave a complete checkpoint or none. A run in a folder with checkpoints of an
earlier run must not confuse its own checkpoints with checkpoints of the earlier run.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Protocol, cast
from unittest import SkipTest

from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.cases import SAVED, unequal
from pv.suites.training_loop.claims.checks import (
    Case,
    Cases,
    due_checkpoints,
    judge,
    on_disk,
    require,
    require_forwards,
    with_several_saves,
)
from pv.suites.training_loop.diagnosis import (
    differing_steps,
    differing_tensors,
    end_difference,
    explain_difference,
    explain_order,
    explain_rates,
    explain_set,
    first_difference,
    logged,
    same_rates,
    without_none,
)
from pv.suites.training_loop.job import Job
from pv.suites.training_loop.oracle import matching_numbers, token_mean
from pv.suites.training_loop.run import Run

UNEVEN = (1, 2, 3)
"""Numbers of micro-batches in a window. An epoch has 4 micro-batches: with 3 in a window, its last window has 1."""
PRINTED = 1e-4
"""Relative tolerance of logged numbers, which may be rounded."""
# Causes that several checks name.
EARLY = "a batch that is fetched too early: before the random state is restored, or in advance, before it is saved"
UNTIED = "a load that unties: embedding and head were one parameter, and are two parameters after the load"
FaultAndCauses = tuple[str, tuple[str, ...]]
"""The fault of a run, "" if it equals the correct run, and the known mistakes that give exactly this fault."""
Check = Callable[[Run, Run, int], str | FaultAndCauses]
"""Compares an uninterrupted run with the run that was resumed after its step k."""


def cut_after_every_step(bench: Bench, check: Check, job: Job = SAVED, windows: tuple[int, ...] = (1, 2)) -> None:
    """Refute the claim if a run that is resumed after any step fails a check.

    Args:
        bench: The bench.
        check: The check.
        job: The job to cut.
        windows: The numbers of micro-batches in a window to try.
    """
    judge(cut_cases(bench, check, job, windows))


def cut_cases(bench: Bench, check: Check, job: Job = SAVED, windows: tuple[int, ...] = (1, 2)) -> Cases:
    """Return a case for every step after which the run is cut. See `cut_after_every_step` for the arguments."""
    cases: Cases = {}
    for accumulate in windows:
        uninterrupted = bench.run(replace(job, accumulate=accumulate))
        for k in due_checkpoints(bench, uninterrupted):
            if k < len(uninterrupted.steps):
                cases[f"accumulation {accumulate}, cut after step {k}"] = cut_case(bench, uninterrupted, k, check)
    return cases


def cut_case(bench: Bench, uninterrupted: Run, k: int, check: Check) -> Case:
    """Resume the run after step k, apply the check, and return the case. A missing checkpoint is a fault."""
    if k not in uninterrupted.checkpoints:
        return Case(uninterrupted, f"there is no checkpoint of step {k}")
    resumed = bench.resume(uninterrupted, k)
    result = check(uninterrupted, resumed, k)
    fault, causes = (result, ()) if isinstance(result, str) else result
    return Case(resumed, fault, causes)


def steps_left_in_epoch(uninterrupted: Run, k: int) -> int:
    """Return the number of steps that are left in the epoch that is cut after step k."""
    return -k % (len(uninterrupted.steps) // uninterrupted.job.epochs)


def falsify_rest_of_the_epoch(bench: Bench) -> None:
    def check(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
        rest = steps_left_in_epoch(uninterrupted, k)
        epoch, taken = divmod(sum(map(len, uninterrupted.order[:k])), len(uninterrupted.job.train))
        return order_fault(uninterrupted, resumed, k, slice(rest), taken, epoch)

    cut_after_every_step(bench, check, windows=UNEVEN)


def order_fault(
    uninterrupted: Run, resumed: Run, k: int, part: slice, taken: int, cut: int | None = None
) -> FaultAndCauses:
    """Return how the examples in a part of the steps after step k differ, and the known orders that match them.

    Args:
        uninterrupted: The uninterrupted run.
        resumed: The run that was resumed after step k.
        k: The step.
        part: The part of the steps after step k that is compared.
        taken: The number of examples that the uninterrupted run has used before this part in the epoch of the part.
        cut: The index of the epoch that was cut; None if the part is in later epochs.
    """
    actual, expected = resumed.order[part], uninterrupted.order[k:][part]
    if actual == expected:
        return "", ()
    names, right = list(chain.from_iterable(actual)), list(chain.from_iterable(expected))
    fault = f"examples {[list(step) for step in actual]}, not {[list(step) for step in expected]}"
    causes = explain_order(names, uninterrupted, taken, cut) or explain_set(names, right)
    # A loop that forgets its position uses the first examples again in any epoch.
    if starts_again(uninterrupted, resumed):
        restart = "the order of the first step and the steps after it: the data start again"
        # In later epochs, `causes` would name the same order a second time.
        causes = (restart,) if cut is None else (restart, *causes)
    return fault, causes


def starts_again(uninterrupted: Run, resumed: Run) -> bool:
    """Return whether a resumed run uses the examples of the first steps of the uninterrupted run."""
    return resumed.order == uninterrupted.order[: len(resumed.order)]


def falsify_steps_left(bench: Bench) -> None:
    def check(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
        expected, actual = len(uninterrupted.steps) - k, len(resumed.steps)
        if actual == expected:
            return "", ()
        causes = _confirmed_causes(bench, uninterrupted, k, _causes_of_steps_left(uninterrupted, actual, k))
        return f"after the cut, {actual} steps are taken, not {expected}", causes

    cases = cut_cases(bench, check)
    if "cadence" not in bench.lacks:
        long = bench.run(replace(SAVED, train=unequal(11), batch=1, epochs=1))
        name = "of 11 steps, cut after step 10, whose name as text sorts before 9"
        cases[name] = cut_case(bench, long, 10, check)
    judge(cases)


def _confirmed_causes(bench: Bench, uninterrupted: Run, k: int, causes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the causes that also explain a run with one more epoch, cut after step `k` and an epoch later.

    A single cause is not tried. A cut that no cause explains, or without a checkpoint, excludes no cause.
    """
    # In a short run, several mistakes give the same number of steps; a longer run distinguishes the mistakes.
    if len(causes) < 2:
        return causes
    longer = bench.run(replace(uninterrupted.job, directory=Path(), epochs=uninterrupted.job.epochs + 1))
    epoch = len(uninterrupted.steps) // uninterrupted.job.epochs
    for at in (k, k + epoch):
        if at in longer.checkpoints:
            causes_of_longer = _causes_of_steps_left(longer, len(bench.resume(longer, at).steps), at)
            causes = tuple(cause for cause in causes if cause in causes_of_longer) or causes
    return causes


def _causes_of_steps_left(uninterrupted: Run, actual: int, k: int) -> tuple[str, ...]:
    """Return the known mistakes by which a run resumed after step `k` takes exactly `actual` steps."""
    total, epoch = len(uninterrupted.steps), len(uninterrupted.steps) // uninterrupted.job.epochs
    last = max(
        (at for at in uninterrupted.checkpoints if at <= k),
        # Sorted by name as text, step-9 comes after step-10: a common mistake of rotation and resume.
        key=lambda at: str(uninterrupted.checkpoints[at]),
        default=0,
    )
    mistakes = {
        "a run from its first step: the steps before the cut are not counted": actual == total,
        f"a run from the checkpoint of step {last}, whose name sorts last as text": last != k
        and actual == total - last,
        "a run without the epoch that begins after the cut": k % epoch == 0 and actual == total - k - epoch,
        "a run from the start of the epoch that was cut": k % epoch > 0 and actual == total - k + k % epoch,
        "a run that ends with the epoch that was cut": actual == -k % epoch and actual < total - k,
        "a run of one epoch more than planned": actual == total - k + epoch,
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def falsify_resume_of_a_finished_run(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        uninterrupted = bench.run(replace(SAVED, accumulate=accumulate))
        resumed = bench.resume(uninterrupted, len(uninterrupted.steps))
        fault = ""
        causes: tuple[str, ...] = ()
        if resumed.steps:
            fault = f"{len(resumed.steps)} steps are taken"
            total = len(uninterrupted.steps)
            mistakes = {total // uninterrupted.job.epochs: "another epoch", total: "a new run"}
            causes = tuple(name for steps, name in mistakes.items() if steps == len(resumed.steps))
        elif differing := differing_tensors(resumed.weights, uninterrupted.weights):
            fault = f"weights {differing}"
        cases[f"accumulation {accumulate}"] = Case(resumed, fault, causes)
    judge(cases)


def falsify_orders_of_later_epochs(bench: Bench) -> None:
    def check(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
        rest = steps_left_in_epoch(uninterrupted, k)
        taken = sum(map(len, uninterrupted.order[: k + rest])) % len(uninterrupted.job.train)
        return order_fault(uninterrupted, resumed, k, slice(rest, None), taken)

    cut_after_every_step(bench, check, windows=UNEVEN)


def falsify_rates_after_a_cut(bench: Bench) -> None:
    def check(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
        expected, actual = [step.rate for step in uninterrupted.steps[k:]], [step.rate for step in resumed.steps]
        if same_rates(actual, expected):
            return "", ()
        return f"rates {actual}, not {expected}", explain_rates(actual, uninterrupted, k)

    # With one checkpoint per epoch, three epochs are needed: a saved optimizer has the rate of the next epoch only.
    cut_after_every_step(bench, check, with_several_saves(bench, SAVED, 3))


def end_fault(uninterrupted: Run, resumed: Run, k: int) -> str:
    """Describe how the weights at the end differ, and the first step that differs; "" if the weights are equal."""
    differing = end_difference(resumed, uninterrupted, k)
    return f"weights at the end: {differing}; {first_difference(resumed, uninterrupted, k)}" if differing else ""


def falsify_weights_without_dropout(bench: Bench) -> None:
    def check(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
        return end_fault(uninterrupted, resumed, k), _causes_of_state(uninterrupted, resumed, k)

    cut_after_every_step(bench, check, replace(SAVED, dropout=0.0, log_every=3))


def _causes_of_state(uninterrupted: Run, resumed: Run, k: int) -> tuple[str, ...]:
    """Return the known mistakes in restoring the state that the first step after the cut shows."""
    if not resumed.steps:
        return ()
    if uninterrupted.tied and not resumed.tied:
        return (UNTIED,)
    step, right = resumed.steps[0], uninterrupted.steps[k]
    other = differing_tensors(step.weights_before, uninterrupted.before(k)) if step.weights_before else ""
    counts = {name: tensor for name, tensor in step.state.items() if name.endswith(".step")}
    mistakes = {
        "the state of a new optimizer: the saved state is not restored": bool(counts)
        and all(float(count) == 1 for count in counts.values()),
        f"weights that differ from the checkpoint: {other}": bool(other),
        # The suite does not record such state. It is the cause if all that the suite records of the step equals the
        # uninterrupted run, but the weights after the step differ.
        "state that the optimizer keeps outside `optimizer.state`, as in an attribute: it is not restored": (
            not other
            and not differing_tensors(without_none(step.gradient), without_none(right.gradient))
            and (step.names, step.rates) == (right.names, right.rates)
            and not differing_tensors(step.state, right.state)
            and bool(differing_tensors(step.weights, right.weights))
        ),
    }
    return tuple(name for name, holds in mistakes.items() if holds)


def falsify_weights_with_dropout(bench: Bench) -> None:
    require_forwards(bench.run(SAVED))  # without forwards in training mode, there is no dropout
    cut_after_every_step(bench, end_fault_with_draws)


def falsify_weights_with_random_data(bench: Bench) -> None:
    noisy, plain = (bench.run(replace(SAVED, dropout=0.0, noise=noise)) for noise in (True, False))
    if noisy.order == plain.order and not differing_tensors(noisy.weights, plain.weights):
        raise SkipTest("with `job.noise` the data draw no random numbers: the run is equal without `job.noise`")
    cut_after_every_step(bench, partial(_fault_with_early_fetch, bench), replace(SAVED, dropout=0.0, noise=True))


def _fault_with_early_fetch(bench: Bench, uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
    """Return the fault in the weights at the end, with data that draw random numbers, and its known causes."""
    fault, causes = end_fault_with_draws(uninterrupted, resumed, k)
    if causes:
        # If a run with dropout resumes correctly, the random state is restored: then the data are fetched too early.
        dropping = bench.run(replace(uninterrupted.job, directory=Path(), noise=False, dropout=SAVED.dropout))
        if not end_fault(dropping, bench.resume(dropping, k), k):
            causes = (EARLY,)
    return fault, causes


def end_fault_with_draws(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
    """Return the fault in the weights at the end of a run that draws random numbers, and its known causes."""
    fault = end_fault(uninterrupted, resumed, k)
    # By a premise the order is correct without noise, so a wrong order with noise comes from other random numbers.
    other_noise = uninterrupted.job.noise and resumed.order != uninterrupted.order[k:]
    if not fault or not (other_noise or explain_difference(resumed, uninterrupted, k) == "random numbers"):
        return fault, ()
    cause = "other random numbers: their state is not restored, or numbers are drawn after it is restored"
    # Every step records a digest of the random state before its first forward.
    if resumed.steps and resumed.steps[0].random_digest == uninterrupted.steps[0].random_digest:
        cause = (
            "other random numbers: the numbers of the start of the run, because the seed is set again and no state is "
            "restored after that"
        )
    return fault, (cause,)


def falsify_tied_weights(bench: Bench) -> None:
    def check(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
        if not uninterrupted.tied:
            raise SkipTest("embedding and head are two parameters also at the end of the uninterrupted run")
        apart = "" if resumed.tied else "embedding and head are no longer one parameter"
        return end_fault(uninterrupted, resumed, k) or apart, (UNTIED,) if apart else ()

    cut_after_every_step(bench, check, replace(SAVED, dropout=0.0, tied=True))


def falsify_history_of_losses(bench: Bench) -> None:
    cut_after_every_step(bench, history_fault, replace(SAVED, dropout=0.0, log_every=3))


def _differing_logs(steps: Sequence[int], actual: Mapping[int, float], expected: Mapping[int, float]) -> str:
    """Format the actual and the expected numbers of some steps."""

    def text(numbers: Mapping[int, float], at: int) -> str:
        return f"{numbers[at]:.6g}" if at in numbers else "none"

    return ", ".join(f"step {at}: {text(actual, at)}, not {text(expected, at)}" for at in steps)


def history_fault(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
    """Return the logged losses of a resumed run that differ, and the known causes."""
    expected, actual = logged(uninterrupted.logs, "loss"), logged(resumed.logs, "loss")
    require(expected, "loss in its `logs`", "where the loop logs none, name `loss` as missing in `features`")
    differing = differing_steps(actual, expected, PRINTED)
    causes = []
    after_cut = {at for at in expected if at > k}
    if actual.keys() == after_cut and after_cut != expected.keys():
        causes.append("a history without the logs before the cut")
    if differing and differing[0] in actual and differing[0] > k:
        after = [sums_ for i in range(k, differing[0]) for sums_ in uninterrupted.batch_sums(i)]
        causes += matching_numbers(
            actual[differing[0]], {"the mean over the steps after the cut only": token_mean(after)}, PRINTED
        )
    fault = f"logged losses differ ({_differing_logs(differing, actual, expected)})" if differing else ""
    return fault, tuple(causes)


def falsify_other_logged_numbers(bench: Bench) -> None:
    compared: list[Mapping[str, float]] = []

    def check(uninterrupted: Run, resumed: Run, k: int) -> FaultAndCauses:
        names = dict.fromkeys(name for row in uninterrupted.logs for name in row if name not in ("step", "loss"))
        hint = "where the loop logs none, name `rate` as missing in `features`"
        require(names, "number in its `logs` besides the loss", hint)
        compared.extend(row for row in resumed.logs if row["step"] > k)
        faults = [number_fault(uninterrupted, resumed, k, name) for name in names]
        causes = tuple(cause for _, causes in faults for cause in causes)
        return "; ".join(fault for fault, _ in faults if fault), causes

    cut_after_every_step(bench, check, replace(SAVED, dropout=0.0, log_every=3))
    require(compared, "`logs` of steps after a cut", "and the uninterrupted run has some")


def number_fault(uninterrupted: Run, resumed: Run, k: int, name: str) -> FaultAndCauses:
    """Return the logs of a resumed run in which a number differs, and the known causes.

    If the number is too low by the scored tokens, or by all tokens, before the cut, its count began again at 0.
    """
    steps = logged(resumed.logs, "step")
    expected = {at: number for at, number in logged(uninterrupted.logs, name).items() if at in steps}
    actual = {at: number for at, number in logged(resumed.logs, name).items() if at in expected}
    differing = differing_steps(actual, expected, PRINTED)
    rows = [example for step in uninterrupted.steps[:k] for example in uninterrupted.examples(step.names)]
    tokens_before_cut = {sum(example.scored for example in rows), sum(len(example.tokens) for example in rows)}
    missing = {round(expected[at] - actual.get(at, expected[at]), 6) for at in differing}
    counted_from_0 = len(missing) == 1 and missing <= tokens_before_cut
    fault = f"{name} ({_differing_logs(differing, actual, expected)})" if differing else ""
    return fault, (f"{name} counted from 0 after the cut",) if counted_from_0 else ()


PARTLY = "a checkpoint that is written in place: the file exists before it is complete"


def _job(bench: Bench) -> Job:
    """Return a job with two checkpoints, so that the first one is complete while the second one is written."""
    return with_several_saves(bench, replace(SAVED, train=unequal(4), epochs=1, dropout=0.0), 2)


def killed_runs(bench: Bench, uninterrupted: Run) -> Iterator[tuple[int, Path, dict[int, Path]]]:
    """Run a job repeatedly, and kill every run at another operation on files, from the first operation to the last.

    Yields:
        The number of the operation, from 1, the directory of the killed run, and its checkpoints by step.
    """
    for operation in count():
        place = bench.kill(uninterrupted, operation)
        if place is None:
            return
        paths = {
            k: place / path.relative_to(uninterrupted.job.directory) for k, path in uninterrupted.checkpoints.items()
        }
        yield operation + 1, place, {k: path for k, path in paths.items() if path.exists()}


def falsify_kill_during_a_save(bench: Bench) -> None:
    uninterrupted = bench.run(_job(bench))
    cases: Cases = {}
    # The killed run with the most checkpoints: its directory, and its checkpoints by step.
    most_saved: tuple[Path, dict[int, Path]] = (Path(), {})
    refused: list[str] = []
    for operation, place, saved in killed_runs(bench, uninterrupted):
        if saved:
            if len(saved) > len(most_saved[1]):
                most_saved = place, saved
            name = f"killed at operation {operation} on files, resumed from step {max(saved)}"
            cases[name] = _resume_after_kill(bench, uninterrupted, place, max(saved), saved[max(saved)], refused)
    judge(cases)
    # A loop that refuses all these checkpoints may refuse every folder of a killed run, whatever it contains.
    if len(refused) == len(cases):
        _require_older(bench, uninterrupted, *most_saved)


def _require_older(bench: Bench, uninterrupted: Run, place: Path, saved: dict[int, Path]) -> None:
    """Raise SkipTest if the trainer also refuses the oldest checkpoint of a killed run, which is complete."""
    try:
        bench.resume_run(uninterrupted, place, saved[min(saved)])
    except Exception as error:  # trainers raise different errors to refuse a directory or a checkpoint
        message = f"{type(error).__name__}: {error}"[:200]
        raise SkipTest(f"every checkpoint of a killed run is refused, also the oldest: {message}") from error


def _resume_after_kill(bench: Bench, uninterrupted: Run, place: Path, k: int, saved: Path, refused: list[str]) -> Case:
    """Resume from the newest checkpoint of a killed run, and compare the final weights with the uninterrupted run.

    Args:
        bench: The bench.
        uninterrupted: The uninterrupted run.
        place: The directory of the killed run.
        k: The step of the checkpoint.
        saved: The checkpoint. The trainer may refuse it, since it may be incomplete.
        refused: A list to which the error is added if the trainer refuses the checkpoint.
    """
    try:
        resumed = bench.resume_run(uninterrupted, place, saved)
    except Exception as error:  # trainers raise different errors for an incomplete checkpoint
        refused.append(f"{type(error).__name__}: {error}")
        return Case(uninterrupted)
    fault = end_fault(uninterrupted, resumed, k)
    return Case(resumed, fault, (PARTLY,) if fault else ())


def falsify_killed_run_goes_on(bench: Bench) -> None:
    newest = cast("WithNewest", bench.trainer).newest
    uninterrupted = bench.run(_job(bench))
    cases: Cases = {}
    for operation, place, saved in killed_runs(bench, uninterrupted):
        name = f"killed at operation {operation} on files, with checkpoints of the steps {sorted(saved)}"
        if (path := newest(place)) is not None:
            cases[name] = _resume_from_newest(bench, uninterrupted, place, path)
        elif len(saved) > 1:
            cases[name] = Case(uninterrupted, "no checkpoint is found, but at least the first is complete")
    judge(cases)


def _resume_from_newest(bench: Bench, uninterrupted: Run, place: Path, path: Path) -> Case:
    """Resume from the checkpoint that `newest` returns, which must be complete, and compare the final weights."""
    try:
        resumed = bench.resume_run(uninterrupted, place, path, saves=False)
    except Exception as error:  # trainers raise different errors for an incomplete checkpoint
        fault = f"the newest checkpoint is {path.name}, which cannot be loaded: {type(error).__name__}: {error}"
        return Case(uninterrupted, fault[:300], (PARTLY,))
    fault = end_fault(uninterrupted, resumed, len(uninterrupted.steps) - len(resumed.steps))
    return Case(resumed, fault, (PARTLY,) if fault else ())


class WithNewest(Protocol):
    """An adapter with the feature `newest`."""

    def newest(self, folder: Path) -> Path | None:
        """Return the checkpoint from which the loop would resume in a folder; None if the folder has no checkpoint."""


def _run_in_used_folder(bench: Bench, earlier: Run, job: Job) -> Run | None:
    """Return the run of a job in the folder of an earlier run; None if the trainer refuses the folder."""
    try:
        return bench.run_after(earlier, job)
    except SkipTest:
        raise
    except (Exception, SystemExit):  # trainers raise different errors for a folder that is not empty
        return None


def falsify_rotation_beside_an_earlier_run(bench: Bench) -> None:
    cases: Cases = {}
    earlier = bench.run(replace(SAVED, keep=2, epochs=3))
    for keep in (1, 2):
        alone = bench.run(replace(SAVED, keep=keep, epochs=1))
        expected = due_checkpoints(bench, alone)[-keep:]
        # If both runs save at the same steps, the checkpoints of the two runs cannot be distinguished.
        if not expected or {*expected} & {*on_disk(earlier)}:
            continue
        run = _run_in_used_folder(bench, earlier, replace(SAVED, keep=keep, epochs=1))
        name = f"keep {keep}, in the folder of a run with the steps {on_disk(earlier)}"
        cases[name] = Case(alone) if run is None else _rotation_case(run, earlier, expected)
    judge(cases)


def _rotation_case(run: Run, earlier: Run, expected: Sequence[int]) -> Case:
    """Check that a run in the folder of an earlier run has kept its own checkpoints."""
    lost = [step for step in expected if step not in on_disk(run)]
    if not lost:
        return Case(run)
    fault = f"after the run, the folder has the steps {on_disk(run)}, but not {', '.join(map(str, lost))} of this run"
    cause = "a rotation that keeps the checkpoints with the largest steps, which belong to the earlier run"
    return Case(run, fault, (cause,) if {*on_disk(run)} >= {*on_disk(earlier)} else ())


def falsify_newest_beside_an_earlier_run(bench: Bench) -> None:
    newest = cast("WithNewest", bench.trainer).newest
    earlier, job = bench.run(SAVED), replace(SAVED, epochs=1, seed=2)
    run = _run_in_used_folder(bench, earlier, job)
    if run is None:
        return
    judge({"in the folder of an earlier, longer run": _newest_case(bench, run, newest)})


def _newest_case(bench: Bench, run: Run, newest: Callable[[Path], Path | None]) -> Case:
    """Check that the checkpoint that `newest` returns is the last checkpoint of this run."""
    place = Path(tempfile.mkdtemp(dir=bench.directory)) / "run"
    shutil.copytree(run.job.directory, place, symlinks=True)  # a copy, since a resumed run may write to its folder
    path = newest(place)
    if path is None:
        return Case(run, "no checkpoint is found")
    resumed = bench.resume_run(run, place, path, saves=False)
    differing = end_difference(resumed, run, len(run.steps))
    fault = f"the newest checkpoint is {path.name}: a run that resumes from it ends with other weights, {differing}"
    causes = ("a checkpoint of the earlier run, whose step is larger",) if not resumed.steps else ()
    return Case(resumed, fault, causes) if differing else Case(resumed)


def falsify_finished_run_with_another_epoch(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate in (1, 2):
        uninterrupted, longer = (bench.run(replace(SAVED, accumulate=accumulate, epochs=epochs)) for epochs in (2, 3))
        # Some loops draw all epochs at once: then a longer run differs from its first step on.
        if longer.order[: len(uninterrupted.steps)] != uninterrupted.order:
            raise SkipTest("the orders of the first epochs depend on how many epochs a run has")
        cases[f"accumulation {accumulate}, 2 epochs and then another"] = _prolonged_case(bench, uninterrupted, longer)
    judge(cases)


def _prolonged_case(bench: Bench, uninterrupted: Run, longer: Run) -> Case:
    """Check that a finished run that is resumed with more epochs uses the remaining examples of a longer run.

    Args:
        bench: The bench.
        uninterrupted: The finished run.
        longer: An uninterrupted run with more epochs, with which the resumed run is compared.
    """
    try:
        resumed = bench.resume(uninterrupted, len(uninterrupted.steps), epochs=longer.job.epochs)
    except SkipTest:
        raise
    except (Exception, SystemExit):  # a trainer may refuse to prolong a run, with any error
        return Case(uninterrupted)
    fault, causes = order_fault(longer, resumed, len(uninterrupted.steps), slice(None), 0)
    if fault and not resumed.steps:
        fault, causes = "no step is taken", ("an epoch that is counted when the run ends, but not trained",)
    return Case(resumed, fault, causes)

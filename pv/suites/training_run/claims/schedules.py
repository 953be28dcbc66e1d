"""Claims about learning rate schedules."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pv.suites.training_run.claim import Record, claim, numbers, windows_of
from pv.suites.training_run.claims.data import ends_of_passes
from pv.suites.training_run.claims.reported import directions, evaluations_of
from pv.suites.training_run.run import Event, Process, Run, Window

HORIZONS = ("T_max", "total_steps", "num_training_steps")
"""Parameters of schedules that give the number of advances after which the schedule has ended."""
NO_RATE = 2.0**-24
"""Steps have no effect below this fraction of the initial rate: they are smaller than float32 rounding errors."""
MIN_STEPS = 4
"""Passes need at least this number of steps on average: a number of epochs must not be mistaken for one of steps."""


@dataclass(frozen=True, slots=True)
class _Schedule:
    """A schedule, its advances, and the windows of its optimizer."""

    event: Event
    calls: list[Event]
    windows: list[Window]
    plan: Event
    """The `planned` event of a `LambdaLR`: the advances of its `end` and of its `peak`, and its `last` factor."""

    @property
    def horizon(self) -> int:
        """Return the number of advances after which the schedule has ended; 0 if the number is unknown."""
        return next((int(self.event["planned"][name]) for name in HORIZONS if self.event["planned"].get(name)), 0)


def _schedules(process: Process) -> Iterator[_Schedule]:
    """Yield the schedules of optimizers, except schedules that another schedule contains."""
    nested = {event["scheduler"] for event in process.of("nested_scheduler")}
    plans = {event["scheduler"]: event for event in process.of("planned")}
    for event in process.of("scheduler"):
        if event["scheduler"] not in nested and event["optimizers"]:
            calls = [call for call in process.of("schedule") if call["scheduler"] == event["scheduler"]]
            windows = next((process.windows[o] for o in event["optimizers"] if process.windows.get(o)), [])
            yield _Schedule(event, calls, windows, plans.get(event["scheduler"], {"end": 0, "peak": 0, "last": 1}))


@claim("TR-RATE-001", "no schedule was advanced")
def schedule_belongs_to_a_stepping_optimizer(run: Run, record: Record) -> None:
    """A schedule changes an optimizer that takes no step, while another optimizer of the same parameters takes steps.

    Both optimizers have the same class and the same initial rates, so that one takes the place of the other. A schedule
    of an unused optimizer may also give values that the script reads, for another quantity or to set the rates of the
    other optimizer itself; if the optimizers differ, the finding is a hint.
    """
    for process in run.processes:
        created = {event["optimizer"]: (event["kind"], event["rates"]) for event in process.of("optimizer")}
        scheduled = {o for s in process.of("scheduler") for o in s["optimizers"]}
        unscheduled = [o for o, windows in process.windows.items() if len(windows) >= 2 and o not in scheduled]
        shares = {event["optimizer"]: event["shares_with"] for event in process.of("held")}
        for schedule in _schedules(process):
            record.tried += bool(schedule.calls)
            # Optimizers of the same parameters without a schedule. Their rates must never change.
            sharing = {other for optimizer in schedule.event["optimizers"] for other in shares.get(optimizer, [])}
            rates = {tuple(w.event["rates"]) for o in sharing & set(unscheduled) for w in process.windows[o]}
            if len(schedule.calls) >= 2 and not schedule.windows and len(rates) == 1:
                kinds = [created.get(o) for o in (*schedule.event["optimizers"], *(sharing & set(unscheduled)))]
                (record.falsify if all(kind == kinds[0] for kind in kinds) else record.hint)(
                    schedule.event["at"],
                    f"{schedule.event['kind']} advances {len(schedule.calls)} times, but its optimizer takes no step; "
                    "the optimizer that takes steps has no schedule",
                    "construct the schedule after the optimizer, for the optimizer that takes the steps",
                )


@claim("TR-RATE-002", "no optimizer with a schedule took a step")
def schedule_advances(run: Run, record: Record) -> None:
    """A schedule is never advanced, in a run that ended by itself after several passes over its data.

    A short run may end before a schedule begins. This is ruled out if the schedule has set a rate other than the base
    rate, as a warm-up does, or if its horizon is the number of steps or epochs of the run.

    A second fault: the script passes falling numbers, such as losses, to `step`, which takes an epoch. The function of
    a LambdaLR or a MultiplicativeLR may take any number, such as the remaining share of the run.
    """
    for process in run.processes:
        for schedule in _schedules(process):
            if not schedule.windows or schedule.event["kind"] == "ReduceLROnPlateau":
                continue
            record.tried += 1
            epochs = [call["epoch"] for call in schedule.calls if call["explicit"] and call.get("epoch") is not None]
            falls = sum(later < before for before, later in pairwise(epochs))
            by_epoch = schedule.event["kind"] not in ("LambdaLR", "MultiplicativeLR")
            if by_epoch and len(epochs) >= 3 and 2 * falls >= len(epochs) - 1 and any(value % 1 for value in epochs):
                record.falsify(
                    schedule.calls[0]["at"],
                    f"step() of {schedule.event['kind']} takes an epoch, and gets {numbers(epochs[:5])}: these numbers "
                    "are no epochs, but the rate is computed from them",
                    "call scheduler.step() without an argument; only ReduceLROnPlateau takes a metric",
                )
                continue
            ended = [e for e in ends_of_passes(process) if e["n"] > schedule.windows[0].n]
            if not schedule.calls and run.complete and len(schedule.windows) >= 4:
                seen = f"{schedule.event['kind']} never advances in {len(schedule.windows)} steps"
                # A loader may be created again for every epoch.
                data = {e["loader"]: (e["at"], e["examples"]) for e in process.of("loader")}
                passes = max(Counter(data[e["loader"]] for e in ended).values(), default=0)
                planned = {schedule.horizon} - {0}
                # A warm-up has begun: its constructor has set a rate other than the base rate.
                has_begun = schedule.event["rates"] != schedule.event["base_rates"]
                has_another = any(
                    other.calls and set(other.event["optimizers"]) & set(schedule.event["optimizers"])
                    for other in _schedules(process)
                )
                if has_another:
                    continue
                is_due = has_begun or planned & {passes, len(schedule.windows)}
                add = record.falsify if passes >= 2 and is_due else record.hint
                add(
                    schedule.event["at"],
                    f"{seen} and {passes} passes over the data",
                    "call scheduler.step() after each optimizer.step(), or once per epoch",
                )


@claim("TR-RATE-003", "no schedule was advanced", premises=("TR-RATE-004",))
def schedule_after_the_step(run: Run, record: Record) -> None:
    """The first rate of a schedule is never used, because the schedule advances before the first step.

    Not a fault: a resumed run or a warm-up that advances the schedule before the loop, at another line; a first rate of
    0, which is skipped on purpose; an explicit epoch, which sets the rate of this epoch; a first step that a loss
    scaler skips; a first batch without a step, where a backward pass comes before the first call of the schedule, and
    all later calls come after steps.
    """
    for process in run.processes:
        skipped = [event["n"] for event in process.of("skipped_step")]
        for schedule in _schedules(process):
            if len(schedule.calls) < 3 or len(schedule.windows) < 3:
                continue
            record.tried += 1
            first, second = schedule.calls[:2]
            step = schedule.windows[0]
            early = first["n"] < step.n < second["n"] and first["at"] == second["at"]
            # Exactly one advance between two steps, in the first ten: the schedule advances by step, not by epoch.
            one_for_each = all(
                sum(a.n < call["n"] < b.n for call in schedule.calls) == 1 for a, b in pairwise(schedule.windows[:10])
            )
            passes = [e["n"] for e in process.of("backward") if str(step.optimizer) in e["reached"]]
            # No backward pass comes before the first call, or a call comes between the last pass and each step.
            before = not any(n < first["n"] for n in passes) or all(
                any(w.passes and w.passes[-1].n < call["n"] < w.n for call in schedule.calls)
                for w in schedule.windows[:10]
            )
            changed = max(schedule.event["rates"], default=0.0) > 0 and step.event["rates"] != schedule.event["rates"]
            explicit = any(call["explicit"] for call in schedule.calls)
            is_skipped = any(n < first["n"] for n in skipped)
            if early and one_for_each and before and changed and not explicit and not is_skipped:
                record.falsify(
                    first["at"],
                    f"{schedule.event['kind']} advances before each step, so its first rate is never used: step 1 has "
                    f"the rate {max(step.event['rates'], default=0):.4g}, but the schedule starts at "
                    f"{max(schedule.event['rates']):.4g}",
                    "call optimizer.step() before scheduler.step()",
                )


@claim("TR-RATE-004", "no schedule was advanced in a run with several micro-batches a step")
def schedule_once_a_step(run: Run, record: Record) -> None:
    """A schedule advances after every micro-batch, and its horizon counts optimizer steps.

    A horizon in micro-batches would be correct. The claim is falsified only if the horizon is the number of steps
    (within 5 %) and the schedule advances beyond the horizon. Otherwise, the finding is a hint if there is no horizon,
    or if the horizon is not the number of advances (within 5 %).
    """
    for process in run.processes:
        for schedule in _schedules(process):
            full = max((len(w.recent) for w in schedule.windows), default=0)
            if full < 2 or not schedule.calls:
                continue
            record.tried += 1
            steps, calls = len(schedule.windows), len(schedule.calls)
            # Advances between two backward passes of one step, in at least half of the steps.
            several = sum(
                any(a.n < call["n"] < b.n for a, b in pairwise(window.recent) for call in schedule.calls)
                for window in schedule.windows
            )
            if 2 * several < steps:
                continue
            planned = schedule.horizon
            seen = f"{schedule.event['kind']} advances after every micro-batch: {calls} times in {steps} steps"
            if planned and run.complete and calls > 1.02 * planned + 1 and abs(planned - steps) <= 0.05 * steps + 1:
                record.falsify(
                    schedule.calls[0]["at"],
                    f"{seen}, but is planned for {planned} advances",
                    "call scheduler.step() once for each optimizer step",
                )
            elif not (planned and abs(planned - calls) <= 0.05 * planned):
                record.hint(
                    schedule.calls[0]["at"],
                    seen,
                    "call scheduler.step() once for each optimizer step, or plan it in micro-batches",
                )


@claim("TR-RATE-005", "no schedule with a horizon was advanced in a run that ended by itself")
def schedule_ends_with_the_run(run: Run, record: Record) -> None:
    """The horizon of a schedule, its planned number of advances, has another unit than its advances.

    Five cases are distinguished:

    1. The horizon counts micro-batches, but the schedule advances with steps: it is exactly M times too long, where M
       is the number of micro-batches in a step. A run with early stopping also ends after whole passes, so the run must
       have no evaluation, or the horizon must not be a whole number of epochs, or transformers.Trainer must have
       planned to end at the last step. Processes that were resumed, or that another process continues, have only a part
       of the horizon and are not judged.
    2. The horizon is exactly the number of steps of the run, but the schedule advances once per pass. This falsifies
       the claim for OneCycleLR and for schedules with `num_training_steps`. Other schedules may count epochs of a
       longer run, so the finding is a hint, unless the horizon is no round number (such as 5, 30 or 150), or
       the schedule would reach its largest rate only after its last advance in the run. The horizon of a LambdaLR is
       the advance at which its functions end.
    3. The horizon is exactly the number of epochs of the run, or all milestones are below it, but the schedule advances
       with every step: it ends long before the run, and a cosine rises again. The horizon of a SequentialLR is the
       horizon of its last part, with or without the parts before it.
    4. StepLR or ExponentialLR reduces the rate to less than 2^-24 (`NO_RATE`) of the initial rate before the run ends,
       so the last steps have no effect. A rate that ends at 1e-4 or 1e-6 of the initial rate may be planned.
    5. The schedule is constructed several times for the same parameters, each time with the total number of advances in
       the run as its horizon, and starts at its first advance each time.
    """
    ranks = Counter(process.rank for process in run.processes)
    for process in run.processes:
        if ranks[process.rank] > 1 or any(e["kind"] == "scheduler" for e in process.of("restore")):
            continue
        if run.complete and _begins_again(process, record):
            continue
        for schedule in _schedules(process):
            planned = schedule.horizon
            if not planned and abs(schedule.plan["end"] - len(schedule.windows)) <= 1:
                planned = len(schedule.windows)
            calls, full = len(schedule.calls), max((len(w.passes) for w in schedule.windows), default=1)
            if calls < 2 or not run.complete:
                continue
            if _advances_by_step_in_epochs(process, schedule, planned, record) or not planned:
                continue
            record.tried += 1
            ended = [e for e in process.of("pass_end") if e["batches"] > 1]
            begun = list(process.of("pass"))
            seen = f"{schedule.event['kind']} is planned for {planned} advances and advances {calls} times"
            if _advances_by_pass_in_steps(process, schedule, planned, record):
                continue
            if calls < 4 or not schedule.horizon:
                continue
            # The horizon is M times too large, where a step has M micro-batches.
            if full > 1 and abs(planned / calls - full) <= 0.02 * full:
                by_step = abs(calls - len(schedule.windows)) <= 0.05 * calls + 1
                epochs = max(1, sum(e["loader"] == ended[0]["loader"] for e in ended)) if ended else 1
                # `transformers.Trainer` records the step at which it ends, so it was not stopped early at this step.
                goal = next((e["last_step"] for e in process.of("backward") if "last_step" in e), None)
                early = (
                    goal != len(schedule.windows)
                    and bool(process.evaluations)
                    and planned % max(1, round(calls / epochs)) == 0
                )
                whole = ended and len(ended) == len(begun) and by_step and not early
                add = record.falsify if whole else record.hint
                add(
                    schedule.event["at"],
                    f"{seen}: it is planned in micro-batches, but advances once per step of {full} micro-batches",
                    f"plan it for {calls} advances",
                )
            elif calls > 1.02 * planned + 1 and schedule.event["kind"] == "CosineAnnealingLR":
                record.hint(schedule.event["at"], f"{seen}: the rate rises again", f"plan it for {calls} advances")
            # A schedule may wait where a loss scaler skips a step.
            elif calls + sum(1 for _ in process.of("skipped_step")) < 0.6 * planned:
                record.hint(
                    schedule.event["at"],
                    f"{seen}: the rate does not reach its final value",
                    f"plan it for {calls} advances",
                )


def _begins_again(process: Process, record: Record) -> bool:
    """Judge schedules that are constructed repeatedly at one line; return whether there is a finding."""
    same = {event["optimizer"]: event.get("again", event["optimizer"]) for event in process.of("optimizer")}
    by_line: dict[tuple[str, int], list[_Schedule]] = defaultdict(list)
    for schedule in _schedules(process):
        if schedule.calls:
            number = schedule.event["optimizers"][0]
            by_line[schedule.event["at"], same.get(number, number)].append(schedule)
    for (at, _), schedules in by_line.items():
        planned = max(schedules[0].horizon, schedules[0].plan["end"])
        calls = [len(schedule.calls) for schedule in schedules]
        # A schedule that continues the previous one begins with the last epoch of the previous one, or loads its state.
        again = len({schedule.calls[0].get("epoch") for schedule in schedules}) == 1
        record.tried += len(schedules) - 1
        # With intended restarts, every cycle ends: the horizon is not much longer than one cycle.
        if len(schedules) >= 3 and again and planned >= 2 * max(calls) and abs(planned - sum(calls)) <= 0.05 * planned:
            record.falsify(
                at,
                f"{schedules[0].event['kind']} is constructed {len(schedules)} times here, each time for {planned} "
                f"advances, but advances at most {max(calls)} times, and {sum(calls)} times in all: the rate begins "
                "again each time",
                "construct the schedule once, before the loop over epochs",
            )
            return True
    return False


def _is_round(number: int) -> bool:
    """Return whether a number may be a planned number of epochs: below 20, a multiple of 10 up to 100, or of 50."""
    return number < 20 or number % 50 == 0 or (number <= 100 and number % 10 == 0)


def _advances_by_pass_in_steps(process: Process, schedule: _Schedule, planned: int, record: Record) -> bool:
    """Judge a schedule that is planned in steps and advances with every pass; return whether there is a finding."""
    steps, calls = [w.n for w in schedule.windows], len(schedule.calls)
    # The numbers of steps between two advances; one number if the schedule advances regularly.
    between = {sum(a["n"] < n < b["n"] for n in steps) for a, b in pairwise(schedule.calls)}
    loaders = [e["loader"] for e in process.of("pass") if e["n"] > schedule.event["n"]]
    once_a_pass = between == {len(steps) // calls} and calls in map(loaders.count, loaders)
    if planned != len(steps) or planned < 2 * calls or not once_a_pass:
        return False
    in_steps = schedule.event["kind"] == "OneCycleLR" or "num_training_steps" in schedule.event["planned"]
    peak = schedule.plan["peak"]
    sure = in_steps or not _is_round(planned) or peak > calls
    add = record.falsify if sure else record.hint
    rates = [max(w.event["rates"], default=0.0) for w in schedule.windows]
    add(
        schedule.event["at"],
        f"{schedule.event['kind']} is planned for {planned} advances and advances {calls} times, once in "
        f"{len(steps) // calls} steps: it is planned for the {len(steps)} steps of the run, but advances once per "
        f"epoch; the rate only goes from {rates[0]:.4g} to {rates[-1]:.4g}",
        'advance it after every step (Lightning: {"scheduler": schedule, "interval": "step"}), '
        f"or plan it for {calls}",
    )
    return True


def _advances_by_step_in_epochs(process: Process, schedule: _Schedule, planned: int, record: Record) -> bool:
    """Judge a schedule that is planned in epochs and advances with every step; return whether there is a finding."""
    steps, calls = [w.n for w in schedule.windows], len(schedule.calls)
    begun = {(e["loader"], e["index"]): e["n"] for e in process.of("pass")}
    loaders = Counter(
        e["loader"]
        for e in process.of("pass_end")
        if steps and e["n"] > steps[0] and begun.get((e["loader"], e["index"]), 0) < steps[-1] and e["batches"] > 1
    )
    trained = {backward.loader for window in schedule.windows for backward in window.passes}
    epochs = max((count for loader, count in loaders.items() if loader in trained), default=0)
    # Between any two successive steps, the schedule advances.
    every_step = all(
        any(a.n < call["n"] < b.n for call in schedule.calls[i : i + 2])
        for i, (a, b) in enumerate(pairwise(schedule.windows))
    )
    if epochs < 2 or abs(calls - len(steps)) > 1 or not every_step or calls < MIN_STEPS * epochs:
        return False
    record.tried += 1
    event, rates = schedule.event, [max(w.event["rates"], default=0.0) for w in schedule.windows]
    kind, milestones = event["kind"], event.get("milestones", [])
    decays = [m for m in milestones if m > 0] if kind == "MultiStepLR" and (event.get("gamma") or 1.0) < 1 else []
    seen = f"{kind} advances after every step, {calls} times in {epochs} epochs"
    right = f"call scheduler.step() once per epoch, after the loop over batches, or plan it for {calls} advances"
    ends = event["planned"].get("total_iters", 0) if kind == "PolynomialLR" else 0
    if kind == "LambdaLR" and not schedule.plan["peak"] and schedule.plan["last"] <= 0.01:
        ends = schedule.plan["end"]
    elif kind == "CosineAnnealingLR" or "num_training_steps" in event["planned"]:
        ends = planned
    elif kind == "SequentialLR":
        ends = next((end for end in _ends_of_last_part(process, event) if end == epochs), 0)
    if ends == epochs:
        record.falsify(
            schedule.calls[0]["at"],
            f"{seen}, but is planned for exactly {epochs} advances: the rates of the first {2 * epochs} steps are "
            f"{numbers(rates[: 2 * epochs][:12])}",
            right,
        )
    elif decays and max(decays) < epochs and len(steps) / epochs > epochs:
        record.falsify(
            schedule.calls[0]["at"],
            f"{seen}: all its milestones {decays} are reached in the first of {epochs} epochs of "
            f"{len(steps) // epochs} steps",
            right,
        )
    elif kind in ("StepLR", "ExponentialLR") and rates[-1] < 1e-2 * rates[0]:
        add = record.falsify if rates[-1] < NO_RATE * rates[0] else record.hint
        add(
            schedule.calls[0]["at"],
            f"{seen}: the rate falls from {rates[0]:.4g} to {rates[len(steps) // epochs]:.4g} in the first epoch, and "
            f"to {rates[-1]:.4g} at the end",
            right,
        )
    else:
        return False
    return True


def _ends_of_last_part(process: Process, event: Event) -> tuple[int, ...]:
    """Return the horizon of a cosine, the last part of a `SequentialLR`, without and with the parts before it."""
    parts = [e["scheduler"] for e in process.of("nested_scheduler") if e.get("within") == event["scheduler"]]
    last = next((e for e in process.of("scheduler") if parts and e["scheduler"] == parts[-1]), None)
    if last is None or last["kind"] != "CosineAnnealingLR":
        return ()
    horizon = last["planned"].get("T_max", 0)
    return horizon, horizon + max(event["milestones"], default=0)


@claim("TR-RATE-006", "no ReduceLROnPlateau got a number of an evaluation or of a report")
def plateaus_are_in_the_direction_of_the_metric(run: Run, record: Record) -> None:
    """ReduceLROnPlateau gets a loss with mode "max", or an accuracy with mode "min".

    The rate is then reduced while the model improves. A metric is recognized as a loss or an accuracy by its value,
    which equals a loss or an accuracy of the last evaluation. An accuracy of one half may also be an error rate, so
    such a call does not count. Any other metric, such as F1 or perplexity, is recognized by the name under which the
    script reports the same number. Such a metric, and an accuracy, must also improve during the run: the accuracy of a
    network under attack is supposed to fall.
    """
    for process in run.processes:
        plateaus = [s for s in _schedules(process) if s.event["kind"] == "ReduceLROnPlateau" and s.calls]
        evaluations = evaluations_of(process, least=1) if plateaus else []
        steps = [event["n"] for event in process.of("step")]
        for schedule in plateaus:
            metrics: list[tuple[float, str]] = []
            metric_names: set[str] = set()
            for call in schedule.calls:
                value, last = call.get("metric"), max((n for n in steps if n < call["n"]), default=-1)
                recent = [evaluation for evaluation in evaluations if last < evaluation.end < call["n"]]
                if value is None:
                    continue
                better = set().union(*(directions(evaluation, value) for evaluation in recent))
                following = min((n for n in steps if n > call["n"]), default=math.inf)
                names = _names_of(value, [e for e in process.of("report") if last < e["n"] < following])
                if not better:
                    better = {direction_of(name) for name in names} - {""}
                    metric_names |= {name for name in names if direction_of(name)}
                if len(better) == 1:
                    metrics.append((value, better.pop()))
            # Require three distinct values: one or two could equal another number by chance.
            if len({value for value, _ in metrics}) < 3:
                continue
            record.tried += len(metrics)
            mode = schedule.event.get("mode")
            values = [value for value, _ in metrics]
            improves = improve(values, metrics[0][1]) or (mode == "max" and not metric_names)
            if improves and all(direction != mode for _, direction in metrics):
                name = "an accuracy" if mode == "min" else "a loss"
                name = f"the number reported as {min(metric_names).replace('#', '1')}" if metric_names else name
                record.falsify(
                    schedule.event["at"],
                    f"ReduceLROnPlateau(mode={mode!r}) gets {name}, {numbers(values[:5])}: an improvement does not "
                    "count as an improvement, and the rate is reduced",
                    f'ReduceLROnPlateau(..., mode="{metrics[0][1]}")',
                )


def improve(values: Sequence[float], direction: str) -> bool:
    """Return whether the last value of a metric is better than the first; `direction` is "max" if larger is better."""
    return values[-1] > values[0] if direction == "max" else values[-1] < values[0]


WORDS = {
    "max": set("acc accuracy f# auc auroc iou miou dice bleu rouge recall precision ndcg top#".split()),
    "min": set("loss error err nll perplexity ppl mse mae rmse wer cer fid".split()),
}
"""Words in the names of metrics that improve in a direction, by direction. "#" is a number, as in f1 and top5."""
NEUTRAL = {"#", "", "avg", "epoch", "eval", "macro", "mean", "micro", "score", "test", "val", "valid", "weighted"}
"""Words in names of numbers that say nothing about the direction."""


def direction_of(name: str) -> str:
    """Return the direction, "max" or "min", in which a number improves, by the last word of its name not in `NEUTRAL`.

    Return "" if this word is not in `WORDS`, as in "error_free", or if the name has a word for a reversed sign, as in
    "neg_loss". Numbers in a name are replaced by "#".
    """
    words = [word for word in re.split("[^a-z#]+", re.sub(r"\d+", "#", name.lower())) if word not in NEUTRAL]
    if not words or {"inverse", "minus", "neg", "negative", "non", "one"} & set(words):
        return ""
    return next((direction for direction, names in WORDS.items() if words[-1] in names), "")


def _names_of(value: float, reports: list[Event]) -> set[str]:
    """Return the names of a number in reports with at least three of its decimals; "#" replaces numbers in names."""
    names: set[str] = set()
    for report in reports:
        for name, text in report["numbers"].items():
            decimals = len(text.partition(".")[2]) if isinstance(text, str) and text.replace(".", "").isdigit() else 0
            # A rounded number differs by at most half a unit of its last decimal; 0.001 units are for rounding errors.
            if decimals >= 3 and abs(float(text) - value) <= 0.501 * 10.0**-decimals:
                # In the line "loss 0.3 val_f1 0.71", the second number has the name "loss # val_f#".
                names.add(re.split(r"(?<![a-z])#", re.sub(r"\d+", "#", name.lower()))[-1].strip(" ,:=|"))
    return names


@claim("TR-RATE-007", "the script itself sets no rates of an optimizer whose groups begin with one rate")
def rates_of_all_groups_are_set(run: Run, record: Record) -> None:
    """The script itself sets the rate of the first group, and leaves the rates of the other groups unchanged.

    A rate may be fixed on purpose for a part of the model, such as a predictor: such a group has a rate or an option
    that the other groups do not have. The claim is therefore judged only if all groups begin with the same rate and
    differ only in the weight decay, which is no reason for different schedules.

    A second fault: a group has its rate under a key that the optimizer does not read, such as `learning_rate`. A script
    may read such a key itself, but then the rate of the group differs from the optimizer's default in some steps.
    """
    optimizers = {(id(process), e["optimizer"]): e for process in run.processes for e in process.of("optimizer")}
    for process, optimizer, windows in windows_of(run):
        event = optimizers.get((id(process), optimizer), {})
        rates = [w.event["rates"] for w in windows]
        _judge_ignored_rates(event, rates, record)
        decays = event.get("decays", [])
        if len(decays) < 2 or not event.get("alike") or len(set(event["rates"])) > 1 or len(set(decays)) < 2:
            continue
        if any(s.windows is windows for s in _schedules(process)) or len(rates) < 8:
            continue
        if any(len(row) != len(decays) for row in rates):
            continue
        columns = list(zip(*rates, strict=True))
        record.tried += len(set(columns[0])) > 1
        # Groups that have their initial rate in every step.
        constant = [i for i, column in enumerate(columns) if set(column) == {event["rates"][i]}]
        if len(set(columns[0])) >= 6 and constant and 0 not in constant and len(constant) == len(columns) - 1:
            record.falsify(
                windows[0].at,
                f"the rate of the first group goes from {columns[0][0]:.4g} to {columns[0][-1]:.4g} in {len(rates)} "
                f"steps; the rate of {'the other group' if len(constant) == 1 else f'the {len(constant)} other groups'}"
                f", with weight decay {decays[constant[0]]:g} instead of {decays[0]:g}, stays "
                f"{event['rates'][constant[0]]:.4g}",
                'for group in optimizer.param_groups: group["lr"] = rate',
            )


def _judge_ignored_rates(event: Event, rates: list[list[float]], record: Record) -> None:
    """Judge rates under a key that the optimizer does not read.

    Args:
        event: The event of the optimizer.
        rates: The rates of all groups, one list per step.
        record: The record of the claim.
    """
    for group, (key, value, default) in event.get("ignored_rates", {}).items():
        number = int(group)
        column = [row[number] for row in rates if number < len(row)]
        if not event["builtin"] or len(column) < 4:
            continue
        record.tried += 1
        if set(column) == {default} and value != default:
            record.falsify(
                event["at"],
                f"parameter group {number} has the key '{key}' with value {value:g}, which {event['kind']} does not "
                f"read: its rate is the default, {default:g}, in all {len(column)} steps",
                f"write the key 'lr': {{'params': ..., 'lr': {value:g}}}",
            )

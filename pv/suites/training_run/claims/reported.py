"""Claims about the numbers that a script reports: prints, logs, or passes to a library that stores metrics.

An *evaluation* is a series of calls of one loss, or of reads of one number, without gradients and without training in
between. A *reading* is a way to compute a number from the series. Right readings are, for example, the mean over the
elements or over the rows. Wrong readings are known mistakes, such as the mean of the means of batches of unequal sizes.

The numbers that are reported after an evaluation are compared with all readings, to the last reported digit. A line of
code falsifies a claim only if its number is the same wrong reading after every evaluation, and never a right reading.
The probability that this happens by chance is a product over the evaluations: (width of the last digit) / (distance of
the wrong reading from the nearest right one).
"""

import math
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

from pv.suites.training_run.claim import Record, claim, is_finite, windows_of
from pv.suites.training_run.run import Event, Process, Run, Window

SURE, LIKELY = 1e-4, 1e-2
"""Largest probabilities of a coincidence for a finding that falsifies a claim, and for a hint."""
VISIBLE = 1e-3
"""Smallest relative error of a mean that falsifies a claim; with a smaller error, the finding is a hint."""
ROUNDING = 3e-6
"""Relative error of a sum in float32."""
MAX_BATCHES = 2_000
"""Largest number of batches of an evaluation; longer evaluations are not judged."""


@dataclass(frozen=True, slots=True)
class ReportedNumber:
    """A number that a script has reported.

    Attributes:
        n: The position of the report among the events.
        at: The line of the report.
        source: Identifies the line of code and the name of the number.
        text: The number as it is reported.
        value: The number.
        half: Largest difference of a value that counts as equal: slightly more than half a unit of the last digit, or
            the rounding error of float32 if that is larger.
    """

    n: int
    at: str
    source: tuple[int, str]
    text: str
    value: float
    half: float

    @property
    def description(self) -> str:
        """Return the number, after the text between the previous number of the report and this one."""
        return f"{self.source[1].rpartition('#')[2]} {self.text}".lstrip(" ,;|)/")

    def shows(self, value: float) -> bool:
        """Return whether a value, rounded to the same digit, equals the number."""
        return abs(self.value - value) <= self.half


def reported_numbers(process: Process) -> list[ReportedNumber]:
    """Return the finite numbers that a process has reported, in their order."""
    reports = []
    for event in process.of("report"):
        for name, number in event["numbers"].items():
            text = number if isinstance(number, str) else repr(float(number))
            value = float(text)
            if not is_finite(value):
                continue
            digits, _, exponent = text.lower().partition("e")
            decimals = len(digits.partition(".")[2]) - int(exponent or 0)
            # A little more than half a unit of the last digit, for ties. A number with all its digits is exact to
            # float32.
            half = max(0.501 * 10.0**-decimals, ROUNDING * abs(value))
            reports.append(ReportedNumber(event["n"], event["at"], (event["key"], name), text, value, half))
    return reports


@dataclass(frozen=True, slots=True)
class Batch:
    """One call of a loss, or one number that was read.

    Attributes:
        mean: The mean over the scored elements.
        weights: Numbers of scored elements, of labels without class weights, and of rows; 0 for unknown numbers.
    """

    mean: float
    weights: tuple[float, float, float]


@dataclass
class Evaluation:
    """A series of calls of one loss, or of reads of one number.

    Attributes:
        key: Identifies the call or the read in the code.
        function: The name of the loss, or "number".
        at: The line of the call or the read.
        start: Position of the first event.
        kind: "loss", "accuracy" (the fraction or the number of correct rows or labels), or "number" (anything else).
        end: Position of the last event.
        batches: The batches of the series.
        loader: The loader of all batches; None if batches come from several loaders or from none.
        full: Whether the series contains every batch that the pass over the loader has delivered, or the pass was left
            before its end.
        ended: Position of the end of the pass over the loader; None if the script left the pass before its end.
        step: Number of steps of any optimizer before the evaluation.
        before: The sum over the scored elements of all earlier evaluations of the same loss, and the number of these
            elements; None without an earlier evaluation.
        one_loader: Whether this and the earlier evaluations are passes over one loader.
        stepped: Whether an optimizer has taken a step since the previous evaluation.
        pairs: Whether the loss compares all pairs of a batch, as a contrastive loss does.
    """

    key: int
    function: str
    at: str
    start: int
    kind: str = "loss"
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    loader: Event | None = None
    full: bool = False
    ended: int | None = None
    step: int = 0
    before: tuple[float, float] | None = None
    one_loader: bool = True
    stepped: bool = False
    pairs: bool = False

    @cached_property
    def right(self) -> list[float]:
        """Return the right readings; they are computed once."""
        return right_readings(self)

    @cached_property
    def wrong(self) -> "dict[Reading, list[float]]":
        """Return the wrong readings; they are computed once."""
        return wrong_readings(self)

    @property
    def unequal(self) -> bool:
        """Return whether the batches have different sizes."""
        return len({batch.weights for batch in self.batches}) > 1

    def units(self) -> list[int]:
        """Return the positions in `Batch.weights` by which batches may be averaged.

        The first dimension of an input counts as rows only if it equals the loader's batch size: in some models it is
        time.
        """
        units = [0, 1]
        if all(batch.weights[2] for batch in self.batches) and (
            self.loader is None or not self.loader["batch"] or self._fits(2, self.loader["batch"])
        ):
            units.append(2)
        return units

    def _fits(self, unit: int, size: int) -> bool:
        """Return whether the size of every batch is the same multiple of a batch size; the last batch may be smaller.

        Args:
            unit: A position in `Batch.weights`.
            size: The batch size of the loader.
        """
        *counts, last = (batch.weights[unit] for batch in self.batches)
        return len(set(counts)) == 1 and counts[0] > 0 and counts[0] % size == 0 and last <= counts[0]

    @cached_property
    def sums(self) -> tuple[float, float]:
        """Return the sum over all scored elements, and their number."""
        sizes = [batch.weights[0] for batch in self.batches]
        return math.fsum(batch.mean * size for batch, size in zip(self.batches, sizes, strict=True)), math.fsum(sizes)

    def is_of_batches(self) -> bool:
        """Return whether the series is one pass over a loader whose batches, except the last, have the same size.

        Then no batch is a unit by itself, such as a document, a task or a domain. A contrastive loss is excluded: its
        value for an example depends on the batch.
        """
        if self.pairs:
            return False
        size = self.loader["batch"] if self.loader is not None else None
        return self.full and isinstance(size, int) and size > 1 and any(self._fits(unit, size) for unit in range(3))


def evaluations_of(process: Process, *, least: int = 2) -> list[Evaluation]:
    """Return the evaluations of a process that have at least `least` batches."""
    # A series lasts until a training forward, a backward pass, a step or a new pass over a loader.
    series: list[Evaluation] = []
    current: dict[tuple[str, int], Evaluation] = {}
    """By name of the loss and key of its call: the series to which the next call belongs."""
    loaders = {event["loader"]: event for event in process.of("loader")}
    lines_of_pairs = _lines_of_pairs(process)
    ends = {(event["loader"], event["index"]): event for event in process.of("pass_end")}
    passes: dict[int, int] = {}
    """By loader: the number of the last pass that has begun."""
    source: int | None = None
    """The loader of the last forward."""
    sources: dict[int, set[int | None]] = defaultdict(set)
    """By id of an evaluation: the loaders of all its batches."""
    of_pass: dict[int, tuple[int, int] | None] = {}
    """By id of an evaluation: the loader and the number of the pass of its first batch."""
    steps = 0
    for event in process.events:
        kind = event["event"]
        steps += kind == "step"
        if kind == "forward":
            source = event["loader"]
            if event["grad"]:
                current.clear()
        elif kind in ("pass", "backward", "step"):
            if kind == "pass":
                passes[event["loader"]] = event["index"]
            current.clear()
        elif kind in ("evaluation_loss", "read"):
            name = event.get("function", "number")
            evaluation = current.get((name, event["key"]))
            if evaluation is None:
                evaluation = current[name, event["key"]] = Evaluation(
                    event["key"], name, event["at"], event["n"], "loss" if kind == "evaluation_loss" else "number"
                )
                evaluation.step, evaluation.pairs = steps, event["at"] in lines_of_pairs
                of_pass[id(evaluation)] = None if source is None else (source, passes.get(source, 0))
                series.append(evaluation)
            evaluation.end = event["n"]
            sources[id(evaluation)].add(source)
            evaluation.batches.append(_batch(event))
    # Numbers of labels of a loss, by pass and length of the series: an accuracy over tokens is a fraction of them.
    labels = {
        (of_pass[id(evaluation)], len(evaluation.batches)): [batch.weights[1] for batch in evaluation.batches]
        for evaluation in series
        if evaluation.kind == "loss" and of_pass[id(evaluation)] is not None
    }
    evaluations = []
    latest: dict[tuple[str, int], Evaluation] = {}
    for evaluation in series:
        if len(evaluation.batches) > MAX_BATCHES or not all(is_finite(batch.mean) for batch in evaluation.batches):
            continue
        if evaluation.kind == "number" and not all(batch.weights[2] for batch in evaluation.batches):
            continue  # several numbers of one batch, such as of a line with two averages
        pass_key = of_pass[id(evaluation)]
        if pass_key is not None and len(sources[id(evaluation)]) == 1:
            evaluation.loader = loaders.get(pass_key[0])
            end = ends.get(pass_key)
            evaluation.full = end is None or end["batches"] == len(evaluation.batches)
            evaluation.ended = None if end is None else end["n"]
        if evaluation.kind == "number":
            _recognize_accuracy(evaluation, labels.get((pass_key, len(evaluation.batches))))
        if not evaluation.sums[1]:  # no label is scored
            continue
        if (last := latest.get((evaluation.function, evaluation.key))) is not None:
            totals = last.before or (0.0, 0.0)
            evaluation.one_loader = last.one_loader and last.loader is evaluation.loader
            evaluation.stepped = last.step < evaluation.step
            evaluation.before = (totals[0] + last.sums[0], totals[1] + last.sums[1])
        latest[evaluation.function, evaluation.key] = evaluation
        if len(evaluation.batches) >= least:
            evaluations.append(evaluation)
    return evaluations


def _lines_of_pairs(process: Process) -> set[str]:
    """Return the lines of cross-entropies with as many classes as rows: scores of all pairs of a batch."""
    lines = set()
    for event in process.of("backward", "evaluation_loss"):
        for loss in event["losses"] if event["event"] == "backward" else [event]:
            shape = ((loss.get("operands") or {}).get("shapes") or [[]])[0]
            if loss["function"] == "cross_entropy" and len(shape) == 2 and shape[0] == shape[1]:
                lines.add(loss["at"])
    return lines


def _batch(event: Event) -> Batch:
    rows = float(event.get("rows", 0))
    if event["event"] == "read":
        return Batch(event["value"], (rows, rows, rows))
    elements = event["elements"]
    mean = event["value"] / elements if event["reduction"] == "sum" and elements else event["value"]
    return Batch(mean, (elements, event["labels"], rows))


def _recognize_accuracy(evaluation: Evaluation, labels: Sequence[float] | None) -> None:
    """Set the kind of a series of reads to "accuracy" if the numbers are fractions of the rows, or counts.

    The means of other numbers are rarely k / n for n rows and a whole number k.

    Args:
        evaluation: A series of reads.
        labels: The number of labels, such as tokens or pixels, in each batch of a loss in the same pass; None without
            such a loss. Whole numbers are counts of rows if none is larger than its number of rows, and counts of
            labels if none is larger than its number of labels.
    """
    values = [(batch.mean, batch.weights[2]) for batch in evaluation.batches]
    for counted in (values, [(value, count) for (value, _), count in zip(values, labels or (), strict=False)]):
        whole = all(0 <= value <= count and value.is_integer() for value, count in counted)
        if whole and any(value > 1 for value, _ in counted):
            evaluation.batches = [Batch(value / count, (count, count, count)) for value, count in counted]
            evaluation.kind = "accuracy"
            return
    if all(0 <= value <= 1 and abs(value * rows - round(value * rows)) < 1e-4 for value, rows in values):
        evaluation.kind = "accuracy" if any(0 < value < 1 for value, _ in values) else "number"


Reading = tuple[str, str]
"""The name of a wrong reading, and the name of the function that the script applies to the mean before the report.

"planned" is the sum divided by (number of batches) x (size of the largest batch), and "last of all" is the sum of the
last batch divided by the size of all batches.
"""
MEAN_OF_MEANS, PLANNED, SUM, TRANSFORMED_FIRST = "mean of means", "planned", "sum", "mean of transformed"
LAST, LAST_OF_ALL, NOT_RESET = "last", "last of all", "not reset"


def _functions(evaluation: Evaluation) -> dict[str, Callable[[float], float]]:
    """Return the functions that a script may apply to a mean before a report, by name."""
    plain: dict[str, Callable[[float], float]] = {"": lambda x: x}
    if evaluation.kind == "accuracy":
        return {**plain, "100 x": lambda x: 100 * x, "1 -": lambda x: 1 - x, "100 - 100 x": lambda x: 100 - 100 * x}
    if evaluation.function.startswith("mse"):
        return {**plain, "sqrt": lambda x: math.sqrt(max(x, 0.0))}
    return {**plain, "exp": lambda x: math.exp(min(x, 100.0))} if evaluation.kind == "loss" else plain


def right_readings(evaluation: Evaluation) -> list[float]:
    """Return the numbers that a correct script may report for an evaluation."""
    units = evaluation.units()
    weights = [[batch.weights[unit] for batch in evaluation.batches] for unit in units]
    sums = [batch.mean * batch.weights[0] for batch in evaluation.batches]
    total = math.fsum(sums)
    # The means of the batches, weighted by the numbers of elements, labels or rows.
    means = [
        math.fsum(batch.mean * w for batch, w in zip(evaluation.batches, column, strict=True)) / sum(column)
        for column in weights
        if sum(column)
    ]
    # The sum over all elements, divided by the numbers of elements, labels, rows or examples.
    divisors = [sum(column) for column in weights]
    if evaluation.loader is not None and evaluation.loader["examples"]:
        divisors.append(evaluation.loader["examples"])
    means += [total / divisor for divisor in divisors if divisor]
    return [apply(mean) for apply in _functions(evaluation).values() for mean in means] + [total]


def directions(evaluation: Evaluation, value: float) -> set[str]:
    """Return the directions, "min" or "max", in which a number improves, for all readings that equal the number.

    Right and wrong readings count, since both improve in the same direction. The set is empty if no reading fits.
    """
    better = set()
    total, count = evaluation.sums
    for name, apply in _functions(evaluation).items():
        means = [apply(total / count), *(v for key, vs in evaluation.wrong.items() if key[1] == name for v in vs)]
        means += [total] if not name else []
        if any(math.isclose(mean, value, rel_tol=ROUNDING, abs_tol=1e-12) for mean in means):
            better.add("max" if evaluation.kind == "accuracy" and name in ("", "100 x") else "min")
    return better if evaluation.kind != "number" else set()


def _mean_over_all(evaluation: Evaluation, reading: Reading, unit: int) -> float:
    """Return the number that a correct script would have reported instead of a wrong reading.

    Args:
        evaluation: The evaluation.
        reading: The wrong reading.
        unit: 0 for a mean over elements, 1 for a mean over rows.
    """
    sizes = [batch.weights[2 if unit else 0] for batch in evaluation.batches]
    return _functions(evaluation)[reading[1]](evaluation.sums[0] / sum(sizes))


def wrong_readings(evaluation: Evaluation) -> dict[Reading, list[float]]:
    """Return the numbers that known mistakes give, by reading: per element and, if this differs, per row."""
    means = [batch.mean for batch in evaluation.batches]
    per_unit = [means]
    if evaluation.kind == "loss" and 2 in evaluation.units():  # the mean over rows of a sum over the elements of a row
        rows = [batch.mean * batch.weights[0] / batch.weights[2] for batch in evaluation.batches]
        if any(not math.isclose(a, b, rel_tol=1e-6) for a, b in zip(means, rows, strict=True)):
            per_unit.append(rows)
    readings: dict[Reading, list[float]] = {}
    planned = len(means) * max(batch.weights[0] for batch in evaluation.batches)
    for name, apply in _functions(evaluation).items():
        if evaluation.unequal:
            readings[MEAN_OF_MEANS, name] = [apply(math.fsum(values) / len(values)) for values in per_unit]
            readings[PLANNED, name] = [apply(evaluation.sums[0] / planned)]
        readings[LAST, name] = [apply(values[-1]) for values in per_unit]
        readings[LAST_OF_ALL, name] = [apply(means[-1] * evaluation.batches[-1].weights[0] / evaluation.sums[1])]
        if evaluation.before is not None:
            total, size = evaluation.before
            readings[NOT_RESET, name] = [apply((total + evaluation.sums[0]) / (size + evaluation.sums[1]))]
        if name in ("exp", "sqrt"):
            transformed = [[apply(value) for value in values] for values in per_unit]
            readings[TRANSFORMED_FIRST, name] = [math.fsum(values) / len(values) for values in transformed]
    if evaluation.kind == "loss":
        readings[SUM, ""] = [math.fsum(values) for values in per_unit]
    return readings


@dataclass(frozen=True, slots=True)
class FollowingReport:
    """A number that is reported after an evaluation.

    Attributes:
        evaluation: The evaluation.
        shown: The number.
        listed: Whether the value of the last batch but one is reported, too, as in a list of all batches.
        is_extra: Whether another number is a right reading of the evaluation, so this one may be reported in addition.
    """

    evaluation: Evaluation
    shown: ReportedNumber
    listed: bool
    is_extra: bool


@dataclass(slots=True)
class Match:
    """A wrong reading that equals all numbers from one line of code.

    Attributes:
        shown: The first of the numbers.
        reading: The wrong reading.
        evaluation: The evaluation before the first number.
        value: The wrong reading of this evaluation.
        right: The number that a correct script would have reported.
        hits: The number of reports that equal the wrong reading and no right one.
        chance: Probability of this agreement if the numbers are something else.
        error: Largest relative distance from the nearest right reading.
        not_worst: Whether the last batch was not the worst one in some evaluation. A script may report the worst batch
            on purpose.
        alone: Whether the last batch was at least once reported without the batch before it.
        apart: Whether this and the earlier evaluations are passes over one loader, with steps in between.
        proper: Whether every evaluation is one pass over a loader with one batch size, and gives losses or accuracies;
            and, for some readings, whether further facts rule out another explanation.
        is_extra: Whether a right reading is reported after every evaluation too.
    """

    shown: ReportedNumber
    reading: Reading
    evaluation: Evaluation
    value: float
    right: float
    hits: int = 0
    chance: float = 1.0
    error: float = 0.0
    not_worst: bool = False
    alone: bool = False
    apart: bool = True
    proper: bool = True
    is_extra: bool = True


def compare(process: Process) -> tuple[dict[str, int], list[Match]]:
    """Compare the reports of a process with its evaluations.

    Returns:
        By name of a wrong reading, the number of right reports in which this mistake was possible; and, for each
        reported number and reading, the best match whose chance is below `LIKELY`.
    """
    groups: dict[tuple[str, int], list[Evaluation]] = defaultdict(list)
    for evaluation in evaluations_of(process):
        groups[evaluation.function, evaluation.key].append(evaluation)
    reports = reported_numbers(process)
    tried: dict[str, int] = defaultdict(int)
    matches: list[Match] = []
    for group in groups.values():
        candidates = []
        comparisons = 0
        for pairs in _following_reports(group, reports):
            for reading in dict.fromkeys(name for pair in pairs for name in pair.evaluation.wrong):
                comparisons += 1
                candidates += _matches(reading, pairs)
            for pair in pairs:
                for name in {name for name, _ in pair.evaluation.wrong}:
                    tried[name] += any(map(pair.shown.shows, pair.evaluation.right))
        # The probability that any reading fits by accident grows with the number of comparisons.
        for match in candidates:
            match.chance *= comparisons
        matches += [match for match in candidates if match.chance < LIKELY]
    # A read of a loss, such as loss.item(), gives the same match as the loss. Keep the match of the loss, but with the
    # line of the read, where the script collects the values.
    best: dict[tuple[tuple[int, str], Reading], Match] = {}
    for match in sorted(matches, key=lambda match: (not match.proper, match.evaluation.kind == "number", match.chance)):
        first = best.setdefault((match.shown.source, match.reading), match)
        if match is not first and first.evaluation.kind == "loss":
            first.evaluation.at = match.evaluation.at
    return tried, list(best.values())


def _following_reports(group: Sequence[Evaluation], reports: Sequence[ReportedNumber]) -> list[list[FollowingReport]]:
    """Return the numbers reported after evaluations, one list per line of code.

    Lines that report inside an evaluation, or several times after one, are left out: they report batches or steps.
    """
    positions = [shown.n for shown in reports]
    pairs: dict[tuple[int, str], list[FollowingReport]] = defaultdict(list)
    repeated: set[tuple[int, str]] = set()
    for position, evaluation in enumerate(group):
        following = group[position + 1].start if position + 1 < len(group) else math.inf
        # A library that fetches one batch ahead ends the pass before the last batch is used.
        end = bisect_right(positions, max(evaluation.end, evaluation.ended or 0))
        repeated.update(shown.source for shown in reports[bisect_right(positions, evaluation.start) : end])
        seen: set[tuple[int, str]] = set()
        after = reports[end : bisect_right(positions, following)]
        before_last = evaluation.batches[-2].mean
        # A number with one or two digits, such as a constant, may agree with a right reading by chance.
        exact = [other for other in after if other.half < 0.01 * abs(other.value)]
        right = {other.source for other in exact if any(map(other.shows, evaluation.right))}
        for shown in after:
            if shown.source in seen:
                repeated.add(shown.source)
            seen.add(shown.source)
            listed = any(other.shows(before_last) for other in after if other.source != shown.source)
            pairs[shown.source].append(FollowingReport(evaluation, shown, listed, bool(right - {shown.source})))
    return [rows for source, rows in pairs.items() if source not in repeated]


def _matches(reading: Reading, pairs: Sequence[FollowingReport]) -> list[Match]:
    """Return the matches of a reading with all numbers from one line of code; [] if one number contradicts it."""
    matches: dict[int, Match] = {}
    contradicted: set[int] = set()
    counted: set[tuple[int, str]] = set()
    for pair in pairs:
        evaluation, shown = pair.evaluation, pair.shown
        for unit, value in enumerate(evaluation.wrong.get(reading, [])):
            # A number that is also near a right reading proves nothing: the wrong reading must be at least three half
            # units of the last digit away from every right one.
            distance, nearest = min((abs(value - other), other) for other in evaluation.right)
            if not shown.shows(value):
                contradicted.add(unit)
            elif not value or (evaluation.kind == "accuracy" and value in (1.0, 100.0)):
                continue  # 0 and 100 % are equal in many readings
            elif distance > 3 * shown.half:
                right = _mean_over_all(evaluation, reading, unit)
                match = matches.setdefault(unit, Match(shown, reading, evaluation, value, right))
                width = 2 * shown.half
                if evaluation.kind == "accuracy":  # fractions of n rows have few values, and their means about n^2
                    percent = 100 if reading[1].startswith("100") else 1
                    rows = sum(batch.weights[2] for batch in evaluation.batches)
                    width = max(width, percent / (rows if reading[0] == LAST else rows**2))
                means = [batch.mean for batch in evaluation.batches]
                match.hits += 1
                match.apart &= evaluation.one_loader and evaluation.stepped
                # Other numbers that the line might report are spread over the distance to the right reading or, for the
                # last batch, over the range of all batches.
                scale = _functions(evaluation)[reading[1]]
                spread = abs(scale(max(means)) - scale(min(means))) if reading[0] == LAST else 0.0
                # A number that is reported again, such as by a model that predicts one class, is no further evidence.
                if (unit, shown.text) not in counted:
                    match.chance *= min(1.0, width / max(distance, spread))
                counted.add((unit, shown.text))
                match.error = max(match.error, distance / max(abs(nearest), 1e-300))
                match.not_worst |= means[-1] != (min(means) if evaluation.kind == "accuracy" else max(means))
                match.alone |= not pair.listed
                match.is_extra &= pair.is_extra
                match.proper &= evaluation.is_of_batches() and evaluation.kind != "number"
    consistent = [match for unit, match in matches.items() if unit not in contradicted]
    for match in consistent:  # a macro average, or a total over all evaluations, beside the mean of the evaluation
        match.proper &= not match.is_extra
    if reading[0] == NOT_RESET:  # a total over several data sets, from several loaders, may be intended
        for match in consistent:
            match.proper &= match.apart
    if reading[0] == LAST:  # a running accuracy may be a whole number of rows by chance
        for match in consistent:
            match.proper &= match.evaluation.ended is not None
            match.proper &= match.evaluation.kind != "accuracy" or len(match.evaluation.batches) * match.hits >= 8
    return consistent


RIGHT = "sum loss * n over the batches, where n is the number of scored elements, and divide by the sum of n"


def _seen(match: Match, reading: str) -> str:
    """Return the text of a finding; `reading` describes the wrong reading."""
    evaluation = match.evaluation
    sizes = {batch.weights[0] for batch in evaluation.batches}
    size = f"of {min(sizes):g} to {max(sizes):g}" if len(sizes) > 1 else f"of {max(sizes):g}"
    kind = {"loss": "scored elements", "accuracy": "labels"}.get(evaluation.kind, "rows")
    return (
        f"{match.shown.description!r}, reported at {match.shown.at}, is {reading}, {match.value:.6g}; the correct "
        f"value is {match.right:.6g} ({len(evaluation.batches)} batches {size} {kind}; {match.hits} such reports)"
    )


def _applied(match: Match) -> str:
    """Return the function that the script applies before the report, such as "exp of "; "" without one."""
    return f"{match.reading[1]} of " if match.reading[1] else ""


@claim("TR-EVAL-001", "no reported number is the mean of an evaluation on batches of unequal sizes")
def reported_mean_is_over_elements(run: Run, record: Record) -> None:
    """A reported loss or accuracy is the mean of the means of unequal batches.

    Or it is the sum over all elements, divided by (number of batches) x (size of the largest batch).

    These facts rule out other explanations: the means over tokens, rows and labels differ visibly from the number; the
    batches come from a loader with one batch size, so a batch is no unit by itself (a document, a task, a graph); and
    the batches have different sizes. An error below 0.1 % is a hint, and so is a number that is reported beside the
    right one, such as a macro average.
    """
    for process in run.processes:
        tried, matches = compare(process)
        record.tried += tried[MEAN_OF_MEANS]
        for match in matches:
            name = match.reading[0]
            if name not in (MEAN_OF_MEANS, PLANNED) or match.evaluation.loader is None:
                continue
            sure = match.chance < SURE and match.proper and match.error >= VISIBLE
            add = record.falsify if sure else record.hint
            wrong = (
                "the mean of the means of batches of unequal sizes"
                if name == MEAN_OF_MEANS
                else "the sum divided by (number of batches) x (size of the largest batch)"
            )
            add(match.evaluation.at, _seen(match, _applied(match) + wrong), RIGHT)


@claim("TR-EVAL-002", "no reported number is the mean of an evaluation of several batches")
def reported_mean_is_over_batches(run: Run, record: Record) -> None:
    """A reported loss or accuracy is the value of the last batch of an evaluation.

    Or it is the sum over the last batch only, divided by the size of all batches.

    These facts rule out other explanations:

    - A report of every batch would come between batches, or list the other batches too.
    - A loop that is left early may stop at the intended batch, so the pass must have ended.
    - The last batch is not always the worst one, in this number or in another number of the same line.
    - Batches that are tasks or documents do not come from a loader with one batch size.
    - A running mean differs from the loss of the last batch.
    - The mean over all batches is not reported as well.
    """
    for process in run.processes:
        tried, matches = compare(process)
        record.tried += tried[LAST]
        for match in matches:
            if match.reading[0] == LAST_OF_ALL and match.evaluation.loader is not None:
                add = record.falsify if match.chance < SURE and match.proper else record.hint
                add(
                    match.evaluation.at,
                    _seen(match, "the sum over the last batch only, divided by the size of all batches"),
                    RIGHT,
                )
        last = [match for match in matches if match.reading[0] == LAST]
        not_worst = {match.shown.source[0] for match in last if match.not_worst}
        for match in last:
            sure = match.chance < SURE and match.proper and match.alone and match.shown.source[0] in not_worst
            if not sure and (match.evaluation.loader is None or not match.alone or match.hits < 2):
                continue  # such as the second of two sets, a list of all batches, or one number that is equal by chance
            add = record.falsify if sure else record.hint
            add(match.evaluation.at, _seen(match, f"{_applied(match)}the value of the last batch only"), RIGHT)


@claim("TR-EVAL-004", "no reported number is the mean of an evaluation after an earlier one")
def reported_mean_starts_anew(run: Run, record: Record) -> None:
    """A reported loss or accuracy is the mean over all evaluations so far.

    All evaluations read one loader, with optimizer steps in between, which rules out a mean over several data sets. The
    mean of the last evaluation alone must differ from the reported number, and is not reported as well.

    Or a training loss is the sum over all epochs so far, divided by the batches or examples of one epoch; or the sum
    over all steps so far, divided by the steps between two reports.

    Or a metric of torchmetrics is computed over the training and an evaluation together, or over two evaluations on one
    loader, although it was computed after the first one. For an aggregate, such as a mean of durations, this is a hint.
    """
    for process in run.processes:
        tried, matches = compare(process)
        record.tried += tried[NOT_RESET]
        for match in matches:
            if match.reading[0] == NOT_RESET and match.evaluation.loader is not None:
                add = record.falsify if match.chance < SURE and match.proper and match.error >= VISIBLE else record.hint
                add(
                    match.evaluation.at,
                    _seen(match, f"{_applied(match)}the mean over all evaluations so far"),
                    "set the sums to 0, or call metric.reset(), before each evaluation",
                )
        reports = reported_numbers(process)
        groups: dict[int, list[Evaluation]] = defaultdict(list)
        for evaluation in training_epochs(process):
            groups[evaluation.key].append(evaluation)
        for group in groups.values():
            # `any` ends at the first finding: a number may be printed and written to a file.
            any(_is_sum_of_epochs(record, pairs, group, len(reports)) for pairs in _following_reports(group, reports))
        _judge_means_between_reports(process, record, reports)
        for event in process.of("metric"):
            trained, evaluated = event["trained"], event["evaluated"]
            record.tried += 1
            add = record.hint if event["aggregates"] else record.falsify
            # A series of one batch may be a forward of the trained model inside a training step.
            if trained > 1 and max(evaluated, default=0) > 1:
                add(
                    event["at"],
                    f"{event['kind']} is computed over {trained} batches of the training and {sum(evaluated)} batches "
                    "of an evaluation together: the metric was not reset in between, or is used for both",
                    "use a separate metric for the evaluation, or call metric.reset() before the evaluation",
                )
            elif len(evaluated) > 1 and min(evaluated) > 1 and event["computed"] and event["sources"] == 1:
                add(
                    event["at"],
                    f"{event['kind']} is computed over {len(evaluated)} evaluations together, with {evaluated[:6]} "
                    "batches: the metric was not reset after the first evaluation",
                    "call metric.reset() before each evaluation",
                )


def _judge_means_between_reports(process: Process, record: Record, reports: Sequence[ReportedNumber]) -> None:
    """Judge means of training losses that are reported every few steps.

    The wrong number is the sum of all losses since the beginning of the run or of the pass, divided by the number of
    losses since the last report. The right number is the mean of the losses since the last report.
    """
    by_key: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for windows in process.windows.values() if len(process.windows) == 1 else ():
        for backward in (backward for window in windows for backward in window.passes):
            for loss in backward.losses:
                by_key[loss.key].append((backward.n, loss.value if loss.reduction == "mean" else math.nan))
    passes = [event["n"] for event in process.of("pass")]
    lines: dict[tuple[int, str], list[ReportedNumber]] = defaultdict(list)
    for shown in reports:
        lines[shown.source].append(shown)
    for losses in by_key.values():
        positions = [n for n, _ in losses]
        sums = list(accumulate((value for _, value in losses), initial=0.0))
        for line in lines.values():
            ends = [bisect_right(positions, shown.n) for shown in line]
            sizes = {b - a for a, b in pairwise([0, *ends])}
            if len(line) < 4 or len(sizes) != 1 or min(sizes) < 2 or not is_finite(sums[-1]):
                continue
            size = sizes.pop()
            means = [(sums[end] - sums[end - size]) / size for end in ends]
            record.tried += sum(shown.shows(mean) for shown, mean in zip(line, means, strict=True))
            starts = [bisect_right(positions, max((n for n in passes if n < shown.n), default=-1)) for shown in line]
            for since, begins in (("run", [0] * len(line)), ("pass over the data", starts)):
                rows = [
                    (shown, (sums[end] - sums[begin]) / size, mean)
                    for shown, begin, end, mean in zip(line, begins, ends, means, strict=True)
                    if end - begin > size
                ]
                wrong = [(shown, value, mean) for shown, value, mean in rows if shown.shows(value)]
                apart = all(abs(value - mean) > 3 * shown.half for shown, value, mean in wrong)
                # The probability that the wrong values are shown by chance: every printed number is an interval.
                widths = [2 * shown.half / abs(value - mean) for shown, value, mean in wrong if apart]
                chance = math.prod(min(1.0, width) for width in widths)
                if len(wrong) == len(rows) > 2 and apart and chance * len(reports) < SURE:
                    shown, _, mean = wrong[-1]
                    record.falsify(
                        shown.at,
                        f"{shown.description} is the sum of all losses since the beginning of the {since}, divided by "
                        f"{size}, the number of losses between two reports; the mean of the last {size} losses is "
                        f"{mean:.6g} ({len(wrong)} such reports)",
                        "set the sum to 0 after each report",
                    )
                    return


def _is_sum_of_epochs(record: Record, pairs: Sequence[FollowingReport], epochs: list[Evaluation], reports: int) -> bool:
    """Compare the numbers from one line of code with sums over all epochs; return whether there is a finding."""
    later = [pair for pair in pairs if pair.evaluation is not epochs[0]]
    for index in range(min(len(epoch.right) for epoch in epochs)):
        hits, chance = 0, 1.0
        for pair in later:
            evaluation, shown = pair.evaluation, pair.shown
            value = math.fsum(epoch.right[index] for epoch in epochs[: epochs.index(evaluation) + 1])
            distance = min(abs(value - other) for other in evaluation.right)
            record.tried += not index and any(map(shown.shows, evaluation.right))
            if not shown.shows(value) or distance <= 3 * shown.half:
                break
            hits, chance = hits + 1, chance * min(1.0, 2 * shown.half / distance)
        if hits >= 2 and hits == len(later) and chance * reports < SURE:
            shown, evaluation = later[-1].shown, later[-1].evaluation
            record.falsify(
                shown.at,
                f"{shown.description} is the sum of the losses of all {epochs.index(evaluation) + 1} epochs so far, "
                "divided by the size of one epoch; the mean of the last epoch is "
                f"{evaluation.right[index]:.6g} ({hits} such reports)",
                "set the sum to 0 before each epoch",
            )
            return True
    return False


@claim("TR-EVAL-003", "no reported number is the mean of an evaluation of several batches")
def reported_mean_is_a_mean(run: Run, record: Record) -> None:
    """A reported number is the sum of the means of batches, or the mean of their perplexities or roots.

    Always a hint: some programs report these on purpose.
    """
    for process in run.processes:
        tried, matches = compare(process)
        record.tried += tried[SUM] + tried[TRANSFORMED_FIRST]
        for match in matches:
            if match.reading[0] == SUM:
                record.hint(match.evaluation.at, _seen(match, "the sum of the means of the batches"), RIGHT)
            elif match.reading[0] == TRANSFORMED_FIRST:
                name = "perplexities" if match.reading[1] == "exp" else "square roots"
                change = f"take {match.reading[1]} of the mean over all elements, once"
                record.hint(match.evaluation.at, _seen(match, f"the mean of the {name} of the batches"), change)


def training_epochs(process: Process) -> list[Evaluation]:
    """Return the training losses of every pass over a loader, in the form of evaluations.

    The field `step` of such an evaluation is the number of steps that were taken in the pass.
    """
    loaders = {event["loader"]: event for event in process.of("loader")}
    passes = [(event["n"], event) for event in process.of("pass")]
    epochs: dict[tuple[int, int, str], Evaluation] = {}
    steps: dict[int, int] = defaultdict(int)
    seen: set[int] = set()
    for windows in process.windows.values():
        for window in windows:
            for taken in window.passes:
                begun = [event for n, event in passes if n < taken.n and event["loader"] == taken.loader]
                if not begun or taken.n in seen:
                    continue
                seen.add(taken.n)
                for loss in taken.losses:
                    key = (begun[-1]["n"], int(taken.loader or 0), loss.key)
                    mean = loss.value if loss.reduction == "mean" else math.nan
                    evaluation = epochs.setdefault(key, Evaluation(zlib.crc32(loss.key.encode()), "", loss.at, taken.n))
                    evaluation.batches.append(Batch(mean, (loss.elements, loss.labels, loss.rows)))
                    evaluation.end, evaluation.loader = taken.n, loaders.get(key[1])
                    steps[id(evaluation)] += window.passes[-1] is taken
    for evaluation in epochs.values():
        evaluation.step = steps[id(evaluation)]
    return [
        evaluation for evaluation in epochs.values() if len(evaluation.batches) > 1 and is_finite(evaluation.sums[0])
    ]


@claim("TR-EVAL-006", "no mean of losses was reported after a pass over one of several loaders of different lengths")
def reported_sum_is_divided_by_its_batches(run: Run, record: Record) -> None:
    """A reported sum of the means of batches is divided by the number of batches of another loader, or of examples.

    These facts rule out other explanations: no mean over batches, rows or labels equals the number; the number of
    batches of the other loader is neither the number of batches of this loader nor the number of steps; and the losses
    are not divided a second time by the batch size, as in a loss per example. All passes must agree, and the
    number of passes must be large enough to rule out chance. Only runs of one process are judged.
    """
    for process in run.processes if len(run.processes) == 1 else ():
        reports = reported_numbers(process)
        lengths = {event["loader"]: event["batches"] for event in process.of("pass_end")}
        groups: dict[tuple[str, int], list[Evaluation]] = defaultdict(list)
        for evaluation in [*training_epochs(process), *evaluations_of(process)]:
            if evaluation.kind == "loss" and evaluation.loader is not None and evaluation.loader["examples"]:
                groups[evaluation.function, evaluation.key].append(evaluation)
        for group in groups.values():
            # `any` ends at the first finding: a number may be printed and written to a file.
            any(_compare_divisors(record, pairs, lengths, len(reports)) for pairs in _following_reports(group, reports))


def _compare_divisors(record: Record, pairs: Sequence[FollowingReport], lengths: dict[int, int], reports: int) -> bool:
    """Compare the numbers from one line of code with wrongly divided sums; return whether there is a finding."""
    hits: dict[str, list[tuple[float, FollowingReport, float]]] = defaultdict(list)
    for pair in pairs:
        evaluation, shown = pair.evaluation, pair.shown
        assert evaluation.loader is not None
        means = [batch.mean for batch in evaluation.batches]
        total, count = math.fsum(means), len(means)
        right = [*evaluation.right, total / count, means[-1], total]
        steps = 0 if evaluation.function else evaluation.step  # the steps of a pass that is trained on
        divisors = {m for loader, m in lengths.items() if loader != evaluation.loader["loader"]} - {count, steps, 0, 1}
        record.tried += bool(divisors) and any(map(shown.shows, right))
        wrong = {f"the {m} batches of another loader": total / m for m in divisors}
        size = evaluation.loader["batch"] or 0
        # If a step has as many micro-batches as a batch has examples, each loss may be divided by this number.
        divided = count == steps * size
        if size > 1 and not divided and evaluation.loader["examples"] not in divisors | {count}:
            wrong[f"the {evaluation.loader['examples']} examples, although each term is a mean over examples"] = (
                total / evaluation.loader["examples"]
            )
        for name, value in wrong.items():
            if shown.shows(value) and value and min(abs(value - other) for other in right) > 3 * shown.half:
                hits[name].append((min(1.0, 2 * shown.half / abs(value)), pair, value))
    for name, matches in hits.items():
        chance = math.prod(chance for chance, *_ in matches) * reports
        if len(matches) < max(2, len(pairs)) or chance > LIKELY:
            continue
        _, pair, value = matches[0]
        evaluation, shown = pair.evaluation, pair.shown
        total, count = math.fsum(batch.mean for batch in evaluation.batches), len(evaluation.batches)
        add = record.falsify if chance < SURE else record.hint
        add(
            shown.at,
            f"{shown.description} is the sum of the means of {count} batches ({total:.6g}) divided by {name}: "
            f"{value:.6g}; the mean of the {count} means is {total / count:.6g} ({len(matches)} such reports)",
            f"divide by the number of summed batches, {count}, or sum loss * len(labels) and divide by the number of "
            "examples",
        )
        return True
    return False


@claim("TR-EVAL-005", "no number was reported after an evaluation that is divided among ranks")
def reported_mean_is_over_ranks(run: Run, record: Record) -> None:
    """A script reports one rank's part of an evaluation, or the mean of the ranks' means over unequal parts.

    Always a hint: a rank may report its own part on purpose.
    """
    ranks = run.ranks
    parts: list[dict[tuple[str, int], list[Evaluation]]] = []
    for process in ranks:
        parts.append(defaultdict(list))
        for evaluation in evaluations_of(process):
            parts[-1][evaluation.function, evaluation.key].append(evaluation)
    for rank, process in enumerate(ranks):
        reports = reported_numbers(process)
        for name, group in parts[rank].items():
            if any(len(part.get(name, ())) != len(group) for part in parts):
                continue
            # By id of an evaluation of this rank: the corresponding evaluations of all ranks.
            columns = dict(zip(map(id, group), zip(*(part[name] for part in parts), strict=True), strict=True))
            for pairs in _following_reports(group, reports):
                _compare_ranks(record, rank, [(columns[id(pair.evaluation)], pair.shown) for pair in pairs])


def _compare_ranks(record: Record, rank: int, pairs: Sequence[tuple[tuple[Evaluation, ...], ReportedNumber]]) -> None:
    """Compare the numbers from one line of code with the mean of one rank, of the means of all ranks, and over all."""
    readings = {f"the mean over the part of rank {rank} only": 0, "the mean of the ranks' means over unequal parts": 0}
    contradicted, example = set(), None
    for ranks, shown in pairs:
        sums = [evaluation.sums for evaluation in ranks]
        means = [total / size for total, size in sums if size]
        if len(means) < len(ranks) or max(means) - min(means) <= 3 * shown.half:
            continue
        whole = sum(total for total, _ in sums) / sum(size for _, size in sums)
        if shown.shows(whole):
            record.tried += 1
            return
        for name, value in zip(readings, (means[rank], sum(means) / len(means)), strict=True):
            if not shown.shows(value):
                contradicted.add(name)
            elif abs(value - whole) > 3 * shown.half:
                readings[name] += 1
                example = example or (ranks[rank], shown, whole)
    for name, hits in readings.items():
        if hits > 1 and name not in contradicted and example is not None:
            evaluation, shown, whole = example
            record.hint(
                evaluation.at,
                f"{shown.description!r}, reported at {shown.at}, is {name} ({hits} such reports); the mean over all "
                f"ranks is {whole:.6g}",
                "reduce the sum of the losses and the number of elements over all ranks (all_reduce), and then divide",
            )


def _training_reports(
    process: Process, windows: Sequence[Window], reports: Sequence[ReportedNumber]
) -> list[list[tuple[Window, ReportedNumber]]]:
    """Return the numbers that are reported after the last backward pass of a step, by line of code.

    Lines that also report between the backward passes of a step are left out: they report micro-batches.
    """
    positions = [shown.n for shown in reports]
    pairs: dict[tuple[int, str], list[tuple[Window, ReportedNumber]]] = defaultdict(list)
    between: set[tuple[int, str]] = set()
    windows = [window for window in windows if window.passes]
    for position, window in enumerate(windows):
        following = windows[position + 1].passes[0].n if position + 1 < len(windows) else math.inf
        first, last = (bisect_right(positions, backward.n) for backward in (window.passes[0], window.passes[-1]))
        between.update(shown.source for shown in reports[first:last])
        for shown in reports[last : bisect_right(positions, following)]:
            pairs[shown.source].append((window, shown))
    return [rows for source, rows in pairs.items() if source not in between]


@claim("TR-LOG-001", "no number was reported after steps of several micro-batches")
def reported_loss_is_not_divided(run: Run, record: Record) -> None:
    """A reported training loss is divided by the number of micro-batches, like the loss of the backward pass.

    These facts rule out other explanations: the loss of the last micro-batch, and the sum and the mean of all losses,
    differ visibly from the number, and are not reported beside it; and the loss of the backward pass is divided by the
    same number. With two micro-batches the finding is a hint, since a factor of 1/2 may belong to the loss, as in half
    of a square. A script that adds up the divided losses of all micro-batches reports their mean, which is right.
    """
    for process, _, windows in windows_of(run):
        reports = reported_numbers(process)
        lines = _training_reports(process, windows, reports)
        # Steps whose loss is reported without the division too, with at least three digits.
        whole = {
            window.n
            for window, shown in (pair for pairs in lines for pair in pairs)
            if shown.half < 0.01 * abs(shown.value) and any(map(shown.shows, _right_losses(_divided_losses(window))))
        }
        for pairs in lines:
            hits, chance, first = 0, 1.0, None
            for window, shown in pairs:
                values = _divided_losses(window)
                if not values:
                    continue
                wrong = values[-1] / len(values)
                right = _right_losses(values)
                record.tried += any(map(shown.shows, right))
                distance = min(abs(value - wrong) for value in right)
                if window.n in whole or not shown.shows(wrong):
                    hits = -len(pairs)  # one contradiction rules out a finding, whatever the other reports show
                elif distance > 3 * shown.half:
                    hits, chance = hits + 1, chance * min(1.0, 2 * shown.half / distance)
                    first = first or (shown, values)
            if hits < 2 or first is None or chance * len(reports) > LIKELY:
                continue
            shown, values = first
            count = len(values)
            add = record.falsify if hits > 2 and count > 2 and chance * len(pairs) < SURE else record.hint
            add(
                shown.at,
                f"{shown.description} is the loss of the last micro-batch ({values[-1]:.6g}) divided by {count}, the "
                f"number of micro-batches of a step ({hits} such reports)",
                f"report the loss before it is divided: loss.item() * {count}",
            )


def _right_losses(values: list[float]) -> list[float]:
    """Return the losses of the micro-batches of a step, their sum and their mean; [] without losses."""
    return [*values, math.fsum(values), math.fsum(values) / len(values)] if values else []


def _divided_losses(window: Window) -> list[float]:
    """Return the losses of the micro-batches of a step if the gradient is the mean of several; else []."""
    losses = [loss for backward in window.passes for loss in backward.losses]
    count = len(window.passes)
    is_one_loss = count > 1 and len(losses) == count and len({loss.key for loss in losses}) == 1
    if not is_one_loss or any(loss.reduction != "mean" or not is_finite(loss.value) for loss in losses):
        return []
    divided = all(abs(loss.weight * loss.elements * count - 1) < 1e-3 for loss in losses)
    return [loss.value for loss in losses] if divided else []


@claim("TR-LOG-002", "no number was reported after a clipping that had an effect")
def reported_norm_is_before_clipping(run: Run, record: Record) -> None:
    """A reported norm of gradients is computed after they were clipped, so it never exceeds the limit.

    Always a hint: the applied norm may be of interest. A number that always equals the limit is not judged.
    """
    for process, _, windows in windows_of(run):
        reports = reported_numbers(process)
        for pairs in _training_reports(process, windows, reports):
            clipped: list[tuple[ReportedNumber, float, float]] = []
            varies = failed = False
            for window, shown in pairs:
                norm, applied = window.clips[-1]["norm"] if window.clips else None, window.event["norm"]
                if norm is None or applied is None:
                    continue
                limit = window.clips[-1]["limit"]
                record.tried += norm > 1.1 * limit and shown.shows(norm)
                failed = failed or not shown.shows(applied)
                # The limit itself is a setting, which may be reported; the applied norm varies with gradients below it.
                varies = varies or not shown.shows(limit)
                if norm > 1.1 * limit:
                    clipped.append((shown, norm, limit))
            if len(clipped) > 2 and varies and not failed:
                shown, norm, limit = clipped[0]
                record.hint(
                    shown.at,
                    f"{shown.description!r} is the norm of the gradient after clipping at {limit:g}; before clipping, "
                    f"the norm was {norm:.5g} ({len(clipped)} such reports)",
                    "report the return value of clip_grad_norm_, the norm before clipping",
                )


@claim("TR-LOG-003", "no number was reported after a backward pass")
def sums_of_losses_have_no_graph(run: Run, record: Record) -> None:
    """A sum of losses over batches keeps the autograd graphs of all batches, although each loss had a backward pass.

    Nothing can use the graph of this sum, but it grows with every batch. A sum that has a backward pass itself is not
    counted, since its terms have no separate passes. Always a hint: the weights are not affected.
    """
    for process in run.processes:
        first = next((event["n"] for event in process.of("backward")), None)
        record.tried += sum(first is not None and event["n"] > first for event in process.of("report"))
        for event in process.of("history"):
            record.hint(
                event["at"],
                f"the number read here is a sum of losses of {event['terms']} steps that still requires a gradient, "
                "although each loss had its backward pass: the sum keeps the graphs of all these batches in memory",
                "add loss.item() or loss.detach() to the sum",
            )

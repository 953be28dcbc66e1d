"""Claims about examples: order, splits, workers, streams, changes in storage, and missing examples.

A *whole pass* is a pass in which a loader has delivered all batches. The examples that a loader can read are known from
the subsets and samplers of torch. If they are not known, rows are compared by hashes of their content. A loader
*trains* if a forward whose gradient a step used got a batch of the loader.
"""

import base64
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from pv.suites.training_run.claim import Record, claim, numbers, windows_of
from pv.suites.training_run.run import Event, Process, Run, Window

MIXED = 1e-3
"""Smallest change of other rows' outputs, relative to their standard deviation, that rounding does not explain."""
SEEDED_STEPS = 5
"""Smallest number of successive steps with equal random numbers that is a finding."""


@dataclass(slots=True, kw_only=True)
class LoaderPass:
    """One pass over a loader.

    Attributes:
        begin: The `pass` event.
        loader: The `loader` event of the loader.
        end: The event of the end of a whole pass; None for another pass.
        left: The event of a pass that was left before its end, which is recorded when the next pass begins.
        workers: The events of workers: one before the first batch of a worker, and one after each recorded batch.
    """

    begin: Event
    loader: Event
    end: Event | None = None
    left: Event | None = None
    workers: list[Event] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class LoaderHistory:
    """The loaders of a process, and their passes in the order of the events."""

    loaders: dict[int, Event]
    passes: list[LoaderPass]
    rows: dict[int, Event]
    """By number of a data set: the rows of a whole pass over it."""

    def latest_pass(self, loader: int, n: int) -> LoaderPass | None:
        """Return the last pass over a loader that began before a position."""
        return next((p for p in reversed(self.passes) if p.loader["loader"] == loader and p.begin["n"] < n), None)

    def rows_of(self, loader: Event) -> list[int]:
        """Return the hashes of the rows of a loader; [] if they are not known, or only a sample is known."""
        rows = self.rows.get(loader["data"])
        return list(rows["prints"]) if rows is not None and rows["divisor"] == 1 else []

    def identity(self, loader: Event) -> object:
        """Return a key that loaders of the same rows share, even if their data set objects differ."""
        rows = self.rows.get(loader["data"])
        return loader["data"] if rows is None else tuple(sorted(rows["prints"]))


def history_of(process: Process) -> LoaderHistory:
    """Return the loaders and passes of a process."""
    history = LoaderHistory(loaders={}, passes=[], rows={})
    by_index: dict[tuple[int, int], LoaderPass] = {}
    for event in process.of("loader", "pass", "pass_end", "pass_left", "rows", "worker"):
        number = event["loader"]
        if event["event"] == "loader":
            history.loaders[number] = event
        elif number not in history.loaders:
            continue
        elif event["event"] == "pass":
            pass_ = by_index[number, event["index"]] = LoaderPass(begin=event, loader=history.loaders[number])
            history.passes.append(pass_)
        elif event["event"] == "rows":
            history.rows[history.loaders[number]["data"]] = event
        elif (number, event["index"]) in by_index:
            pass_ = by_index[number, event["index"]]
            if event["event"] == "worker":
                pass_.workers.append(event)
            elif event["event"] == "pass_left" and not _has_all(event, pass_.loader):
                pass_.left = event
            else:
                pass_.end = event
    return history


def _has_all(left: Event, loader: Event) -> bool:
    """Return whether a pass has all batches although it was left: some libraries count batches and then stop."""
    size = (loader["examples"] or 0) // (loader["replicas"] or 1)
    missing = (loader["batch"] or 1) - 1 if loader["drop_last"] else 0
    return size > 0 and bool(left["rows"] >= size - missing)


def ends_of_passes(process: Process) -> list[Event]:
    """Return the events that end a pass over all batches of a loader."""
    loaders = {event["loader"]: event for event in process.of("loader")}
    return [
        event
        for event in process.of("pass_end", "pass_left")
        if event["event"] == "pass_end" or _has_all(event, loaders[event["loader"]])
    ]


def training_loaders(process: Process) -> set[int]:
    """Return the numbers of the loaders whose batches a step has used."""
    return {forward["loader"] for forward, _ in process.training_forwards if forward["loader"] is not None}


def restarts(process: Process, windows: list[Window]) -> list[int]:
    """Return the positions at which the weights of an optimizer may have been reset.

    These are the positions of loads into a trained model of states that were not taken from a model, or were taken
    before the first step, and of backward passes before which parameters were written more often than between other
    steps.

    Args:
        process: The process.
        windows: The windows of one optimizer, or of successive optimizers of the same parameters.
    """
    loads = [e["n"] for e in process.of("load") if e["trained"] and not e["taken_at_step"]]
    firsts = [(w.passes[0], str(w.optimizer)) for w in windows if w.passes]
    # `written` is the sum of the version counters of all parameters: torch adds 1 for each in-place change. An ordinary
    # step adds the same amount every time, so a larger difference is a write by the script, such as a load.
    events = {event["n"]: event["reached"] for event in process.of("backward")}
    written = [
        (first.n, events[first.n][number]["written"]) for first, number in firsts if number in events.get(first.n, {})
    ]
    changes = [(b[0], b[1] - a[1]) for a, b in pairwise(written)]
    ((usual, _),) = Counter(change for _, change in changes).most_common(1) or [(0, 0)]
    return sorted(loads + [n for n, change in changes if change > usual])


@claim("TR-DATA-001", "no training read two whole passes over a data loader")
def epochs_have_different_orders(run: Run, record: Record) -> None:
    """All whole passes of a random sampler have the same order, while one optimizer continues training.

    Not a fault: several runs from the same seed, such as a comparison of settings, which have separate optimizers or
    reset the weights; and two loaders that are read in parallel in the same order, so overlapping passes are left out.

    If a pass without training has the same order, this may be the order of stored results, such as the outputs of a
    teacher, and the finding is a hint, unless the cause is a constant epoch of a sampler with `set_epoch`. The order of
    a sampler that is not random may be intended, and is a hint. A user-defined sampler counts as random if it draws a
    permutation in every pass, or has `set_epoch`.
    """
    for process in run.processes:
        history = history_of(process)
        trainings = _trainings(process, history)
        trained = {pass_.begin["n"] for passes in trainings for pass_ in passes}
        for passes in trainings:
            groups: dict[tuple[object, ...], list[LoaderPass]] = defaultdict(list)
            for pass_ in passes:
                groups[history.identity(pass_.loader), pass_.loader["sampler"], pass_.begin["at"]].append(pass_)
            for group in groups.values():
                untrained = [p for p in history.passes if p.loader is group[0].loader and p.begin["n"] not in trained]
                _compare_orders(group, untrained, record)


def _trainings(process: Process, history: LoaderHistory) -> list[list[LoaderPass]]:
    """Return groups of passes over loaders: the passes of a group train one optimizer, without a reset of weights."""
    trainings: dict[tuple[int, int], list[LoaderPass]] = defaultdict(list)
    for optimizer, windows in process.windows.items():
        cuts = restarts(process, windows)
        for taken in (p for window in windows for p in window.passes if p.loader is not None):
            current = history.latest_pass(taken.loader or 0, taken.n)
            passes = trainings[optimizer, sum(cut <= taken.n for cut in cuts)]
            if current is not None and current not in passes:
                passes.append(current)
    return list(trainings.values())


def _compare_orders(group: list[LoaderPass], untrained: list[LoaderPass], record: Record) -> None:
    """Compare the orders of the whole passes over one loader, or over loaders of the same rows.

    Args:
        group: The passes that one optimizer has used.
        untrained: The passes over the loader of the first pass of `group` that no optimizer has used.
        record: The record of the claim.
    """
    whole = [(p, p.end) for p in group if p.end is not None and p.end["rows"] >= 10 and p.end["batches"] >= 2]
    if len(whole) < 2 or any(end["n"] > after.begin["n"] for (_, end), (after, _) in pairwise(whole)):
        return
    # Streams have no indices. Their order is known by the content of the first batches.
    key = "order" if whole[0][1]["order"] is not None else "content"
    orders = [end[key] for _, end in whole]
    if None in orders:
        return
    record.tried += len(orders)
    first = whole[0][0]
    loader = first.loader
    name = loader["dataset"] if loader["iterable"] else loader["sampler"]
    if len(set(orders)) > 1:
        return
    epochs = {pass_.begin["epoch"] for pass_, _ in whole}
    seen = f"{len(orders)} passes over {whole[0][1]['rows']} examples by {name} have the same order"
    is_constant = loader["set_epoch"] and len(epochs) == 1 and first.begin["epoch"] is not None
    if loader["random"] is not False and (loader["replicas"] or loader["random"] is None) and is_constant:
        cause = f"; the epoch of the sampler is {first.begin['epoch']} in all of them"
        record.falsify(first.begin["at"], seen + cause, "call sampler.set_epoch(epoch) before each pass")
    elif loader["random"] or all(end["draws"] for _, end in whole):
        is_stored = any(pass_.end is not None and pass_.end[key] == orders[0] for pass_ in untrained)
        (record.hint if is_stored else record.falsify)(
            loader["made_at"],
            f"{seen}; a random generator is seeded with the same number before each pass",
            "seed once before the loop over epochs, or add the number of the epoch to the seed",
        )
    elif not loader["iterable"]:  # the files of a stream may have been written in a random order
        right = "pass shuffle=True to the DataLoader" if loader["random"] is False else "shuffle again before each pass"
        record.hint(loader["made_at"], seen, right)


def _members(loader: Event) -> int | None:
    """Return the examples of the base data set that a loader can read, as the bits of an integer; None if unknown."""
    if loader["readable"] is None or not loader["base_examples"]:
        return None
    if loader["readable"] == "all":
        return (1 << int(loader["base_examples"])) - 1
    return int.from_bytes(base64.b64decode(loader["readable"]), "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """The result of comparing the examples of an evaluation with the examples of earlier training."""

    common: int
    evaluated: int
    is_partial: bool
    """Whether neither set of examples contains the other."""
    is_from_earlier_fold: bool
    """Whether an earlier training at the same line has read some evaluated examples, and the last training none."""
    copies: int = 0
    """Number of different training rows that equal evaluated rows, if no index is common.

    It is 0 if it is at most a fifth of the evaluated rows, if these are fewer than 8, or if indices are not known.
    """
    is_in_every_source: bool
    """Whether all earlier trainings have read all evaluated examples."""


@claim("TR-DATA-002", "no model was evaluated on a data loader after a training on another one")
def evaluated_examples_are_not_trained_on(run: Run, record: Record) -> None:
    """Evaluated examples were trained on before, by the same model.

    An evaluation of all or some training examples, or of all data, may be intended (accuracy on the training set,
    pseudo-labels, pruning), and is at most a hint. Training on evaluated examples *later*, such as a last training on
    all data, is no fault. Four cases falsify the claim:

    1. Some evaluated examples were trained on and others were not, and the training has further examples. The
       evaluation computes a mean or a sum of losses; losses of single examples may select examples to train on. If the
       evaluation computes no loss, it must be the only one that may have examples that were not trained on: a pool for
       pseudo-labels has no losses, but a separate test set.
    2. The evaluated examples were trained on in an earlier fold of the same loop, and the model was not reset.
    3. The evaluated part of a `random_split` is in the data of every training, which reads the whole set, and no other
       evaluation reads examples that were not trained on.
    4. A restarted process evaluates other rows than the process before it did, and the earlier process has trained on
       some of these rows.

    Rows may be equal by chance: the number of equal rows within the training data shows how many to expect.
    """
    for process in run.processes:
        history = history_of(process)
        trained_by: dict[int, list[Event]] = defaultdict(list)
        for forward, _ in process.training_forwards:
            trained_by[forward["model"]].append(forward)
        reductions = _reductions(process)
        # Folds may have one model, whose parameters are initialized again, and one optimizer each.
        same = {e["optimizer"]: e.get("again", e["optimizer"]) for e in process.of("optimizer")}
        for model, trained in trained_by.items():
            first = next((o for f in trained for o in sorted(process.users[f["n"]]) if process.windows.get(o)), None)
            windows = [w for o in process.windows if same.get(o) == same.get(first) for w in process.windows[o]]
            cuts = restarts(process, sorted(windows, key=lambda window: window.n) if first is not None else [])
            trains = {forward["loader"] for forward in trained}
            # The forward of a teacher that was trained on the examples of its student is not an evaluation, so loaders
            # that train any model are left out.
            train_any = training_loaders(process)
            evaluations: dict[int, list[Event]] = defaultdict(list)
            for forward, _ in process.evaluations:
                number = forward["loader"]
                if forward["model"] == model and number in history.loaders and number not in train_any:
                    evaluations[number].append(forward)
            has_others = any(f["model"] == model and f["loader"] is None for f, _ in process.evaluations)
            # Within each segment between two restarts, the last evaluation counts: it has the most training before it.
            results: dict[int, Overlap] = {}
            for number, forwards in evaluations.items():
                for last in {sum(cut < f["n"] for cut in cuts): f["n"] for f in forwards}.values():
                    since = max((cut for cut in cuts if cut < last), default=-1)
                    before = [f["loader"] for f in trained if since < f["n"] < last and f["loader"] in history.loaders]
                    sources = [history.loaders[n] for n in dict.fromkeys(before)]
                    if sources:
                        overlap = _overlap(history, history.loaders[number], sources, history.loaders[before[-1]])
                        if overlap is not None and (number not in results or overlap.common):
                            results[number] = overlap
                if number in results:
                    record.tried += results[number].evaluated
            for number, overlap in results.items():
                # An evaluation that cannot be compared may be of examples that were not trained on.
                is_alone = all(name in results and results[name].common for name in evaluations if name != number)
                kinds = set().union(*(reductions[forward["n"]] for forward in evaluations[number]))
                is_measured = bool(kinds - {"none"}) or (not kinds and is_alone and not has_others)
                _judge_overlap(history.loaders[number], overlap, is_alone, is_measured, trains, history, record)
    _compare_restarts(run, record)


def _reductions(process: Process) -> dict[int, set[str]]:
    """Return, by position of a forward without gradients, the reductions of the losses that follow it."""
    reductions: dict[int, set[str]] = defaultdict(set)
    last = -1
    for event in process.of("forward", "evaluation_loss"):
        if event["event"] == "evaluation_loss":
            reductions[last].add(event["reduction"])
        elif not event["grad"]:
            last = event["n"]
    return reductions


def _compare_restarts(run: Run, record: Record) -> None:
    """Judge evaluated rows that an earlier process has trained on, if the earlier process evaluated other rows.

    The later process has the same rank and loads weights before its first step: it restarts the earlier one.
    """
    ordered = sorted(run.processes, key=lambda process: float(process.start.get("time", 0)))
    for before, after in combinations(ordered, 2):
        if before.rank != after.rank or not any(e["trained"] and not e["step"] for e in after.of("load")):
            continue
        history, later = history_of(before), history_of(after)
        trained = [history.rows_of(history.loaders[n]) for n in training_loaders(before) & set(history.loaders)]
        rows: Counter[int] = sum((Counter(part) for part in trained), Counter())
        # Pairs of equal rows inside the training estimate how many evaluated rows equal a trained one by chance:
        # 2 * pairs / n for each row. The threshold is ten times this estimate, plus eight rows for small data sets.
        pairs = sum(count * (count - 1) / 2 for count in rows.values())
        evaluates = {forward["loader"] for forward, _ in after.evaluations} - training_loaders(after)
        for loader in (later.loaders[n] for n in evaluates & set(later.loaders)):
            tested = set(later.rows_of(loader))
            earlier = [set(history.rows_of(e)) for e in history.loaders.values() if e["at"] == loader["at"]]
            overlap = len(tested & rows.keys())
            if len(tested) < 8 or len(rows) < 8 or not earlier or any(part & rows.keys() for part in earlier):
                continue
            record.tried += len(tested)
            if 8 + 20 * pairs * len(tested) / rows.total() <= overlap < len(tested):
                record.falsify(
                    loader["made_at"],
                    f"{overlap} of {len(tested)} evaluated examples were trained on before the restart, and the "
                    "trained weights were loaded: the split into training and evaluation has changed",
                    "seed the split: random_split(data, sizes, generator=torch.Generator().manual_seed(0)); or save "
                    "the indices",
                )


def _overlap(history: LoaderHistory, evaluated: Event, sources: list[Event], current: Event) -> Overlap | None:
    """Compare an evaluation with earlier training, by index if the data set is the same, else by hashes of rows.

    Args:
        history: The loaders of the process.
        evaluated: The loader of the evaluation.
        sources: The loaders of the training before the evaluation.
        current: The last of these loaders.

    Returns:
        The result; None if the examples are not known, or if fewer than 8 rows can be compared.
    """
    same = [s for s in sources if s["base"] == evaluated["base"] and _members(s) is not None]
    members_evaluated = _members(evaluated)
    if same and members_evaluated is not None:
        # Sets of indices are the bits of Python integers: their union and intersection are single operations.
        sets = [(s, _members(s) or 0) for s in same]
        union = 0
        for _, members in sets:
            union |= members
        common = members_evaluated & union
        tested = set(history.rows_of(evaluated))
        copies = len({n for s in same for n in history.rows_of(s) if n in tested})
        overlapping = [(s, members) for s, members in sets if members & members_evaluated]
        disjoint = current in same and not (_members(current) or 0) & members_evaluated
        return Overlap(
            common=common.bit_count(),
            evaluated=members_evaluated.bit_count(),
            is_partial=common != members_evaluated and all(members & ~members_evaluated for _, members in overlapping),
            is_from_earlier_fold=disjoint and any(s["at"] == current["at"] for s, _ in overlapping),
            copies=copies if 5 * copies > len(tested) >= 8 else 0,
            is_in_every_source=len(same) == len(sources) and not any(members_evaluated & ~m for _, m in sets),
        )
    listed = {s["loader"]: history.rows[s["data"]] for s in sources if s["data"] in history.rows}
    if not listed or len(listed) < len(sources) or evaluated["data"] not in history.rows:
        return None
    rows = [history.rows[evaluated["data"]], *listed.values()]
    # Long lists are samples of the rows whose number is divisible by a power of 2; the coarsest is common to all.
    divisor = max(event["divisor"] for event in rows)
    samples = [[n for n in event["prints"] if n % divisor == 0] for event in rows]
    tested, parts = set(samples[0]), dict(zip(listed, map(set, samples[1:]), strict=True))
    counts = Counter(n for part in samples[1:] for n in part)
    # Rows that are equal by chance: see `_compare_restarts`.
    pairs = sum(count * (count - 1) / 2 for count in counts.values())
    total = sum(counts.values())
    if len(tested) < 8 or len(counts) < 8:
        return None
    shared = tested & set(counts)
    if len(shared) < 8 + 20 * pairs * len(samples[0]) / total:
        return Overlap(
            common=0,
            evaluated=len(tested),
            is_partial=False,
            is_from_earlier_fold=False,
            is_in_every_source=False,
        )
    fold_rows = [part & tested for number, part in parts.items() if history.loaders[number]["at"] == current["at"]]
    return Overlap(
        common=len(shared),
        evaluated=len(tested),
        is_partial=bool(tested - shared) and all(part - tested for part in parts.values() if part & tested),
        is_from_earlier_fold=any(fold_rows) and not parts.get(current["loader"], tested) & tested,
        is_in_every_source=all(tested <= part for part in parts.values()),
    )


def _judge_overlap(
    loader: Event,
    overlap: Overlap,
    is_alone: bool,
    is_measured: bool,
    trains: set[int],
    history: LoaderHistory,
    record: Record,
) -> None:
    """Judge an evaluation by its overlap with earlier training.

    Args:
        loader: The loader of the evaluation.
        overlap: The result of the comparison.
        is_alone: Whether all other evaluations of the model have examples that were trained on.
        is_measured: Whether the evaluation computes a mean or a sum of losses; or it has no loss, and no other
            evaluation may have examples that were not trained on.
        trains: The numbers of the loaders that the model was trained on.
        history: The loaders of the process.
        record: The record of the claim.
    """
    if not overlap.common and overlap.copies:
        record.hint(
            loader["made_at"],
            f"{overlap.copies} of {overlap.evaluated} evaluated examples are equal to training examples",
            "remove duplicates, and split the data before examples are repeated or augmented",
        )
    if not overlap.common:
        return
    seen = f"{overlap.common} of {overlap.evaluated} evaluated examples were trained on before"
    whole = [t for t in trains if t in history.loaders and history.loaders[t]["data"] == loader["base"]]
    if overlap.is_from_earlier_fold:
        record.falsify(
            loader["made_at"],
            f"{seen}, in an earlier fold, and the weights were not reset between the folds",
            "construct a new model and a new optimizer for each fold",
        )
    elif overlap.is_partial and is_measured:
        record.falsify(
            loader["made_at"],
            f"{seen}; the other {overlap.evaluated - overlap.common} were not, so this is not an evaluation on the "
            "training set",
            "split the examples once into disjoint parts: train, val = random_split(data, [0.9, 0.1])",
        )
    elif loader["split"] is not None and whole and is_alone and overlap.is_in_every_source:
        record.falsify(
            loader["made_at"],
            f"{seen}: they are one part of a random_split, and the training reads the whole data set",
            "train on the other part: train, val = random_split(data, [0.9, 0.1])",
        )
    elif is_alone or overlap.is_partial:
        record.hint(loader["made_at"], seen, "evaluate examples that are not trained on")


def _histories(run: Run) -> Iterable[tuple[LoaderHistory, set[int]]]:
    """Yield the loaders and passes of every process, and the numbers of the loaders that train."""
    for process in run.processes:
        yield history_of(process), training_loaders(process)


@claim("TR-DATA-003", "no data loader with several workers that draw random numbers was trained on")
def workers_draw_different_numbers(run: Run, record: Record) -> None:
    """Two workers, or one worker in two passes, draw the same random numbers while they fetch batches.

    The generator must be in use: the first batch changes its state, and the states also agree after this batch. For a
    stream the finding is a hint, since all workers may need the same order to divide the stream. In two passes, the
    same numbers falsify the claim only if the order of the examples is random: the numbers are then used for different
    examples, which rules out a fixed augmentation. Both passes must belong to one training, since several trainings of
    one process, such as a comparison of settings, may begin with the same seed.
    """
    for process in run.processes:
        history, trains = history_of(process), training_loaders(process)
        together = [{pass_.begin["n"] for pass_ in passes} for passes in _trainings(process, history)]
        earlier: dict[tuple[object, ...], int] = {}
        for pass_ in history.passes:
            if pass_.loader["loader"] not in trains:
                continue
            # By worker and batch: fingerprints of the states of the generators. A generator whose state does not change
            # in one batch is not used, and is left out.
            states: dict[int, dict[int, dict[str, int]]] = defaultdict(dict)
            for event in pass_.workers:
                if "states" in event:
                    states[event["worker"]][event["batch"]] = event["states"]
            drawn: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
            for worker, batches in states.items():
                for name, start in batches.get(0, {}).items():
                    after = batches.get(1, {}).get(name, start)
                    if after != start:
                        drawn[name][worker] = (start, after)
            for name, draws in drawn.items():
                right = (
                    "seed the generator in worker_init_fn with torch.initial_seed() % 2**32, which differs per worker "
                    "and epoch"
                )
                record.tried += len(draws)
                counts = Counter(draws.values())
                if counts and max(counts.values()) > 1:
                    seen = f"{max(counts.values())} workers draw the same random numbers from {name} in one pass"
                    add = record.hint if pass_.loader["iterable"] else record.falsify
                    add(pass_.loader["made_at"], seen, right)
                    continue
                for worker, state in draws.items():
                    key = (pass_.loader["data"], pass_.begin["at"], name, worker, state)
                    pair = {pass_.begin["n"], earlier.setdefault(key, pass_.begin["n"])}
                    if len(pair) == 2 and any(pair <= training for training in together):
                        seen = f"worker {worker} draws the same random numbers from {name} in two passes"
                        add = record.falsify if pass_.loader["random"] and not pass_.loader["iterable"] else record.hint
                        add(pass_.loader["made_at"], seen, right)


@claim("TR-DATA-004", "no stream was read by several workers")
def streams_are_divided_over_workers(run: Run, record: Record) -> None:
    """Workers of one pass yield the same rows in the same order, so every example is repeated by every worker.

    No row may come twice from one worker, which rules out synthetic data that repeats one batch. Workers that read all
    rows in different orders are a hint: this may be an intended endless stream.
    """
    for process in run.processes:
        history = history_of(process)
        used = training_loaders(process) | {forward["loader"] for forward, _ in process.evaluations}
        for pass_ in history.passes:
            if not pass_.loader["iterable"] or pass_.loader["loader"] not in used:
                continue
            rows: dict[int, list[int]] = defaultdict(list)
            for event in sorted(pass_.workers, key=lambda event: event["batch"]):
                rows[event["worker"]] += event.get("rows", [])
            record.tried += len(rows) if len(rows) > 1 else 0
            for a, b in combinations(rows.values(), 2):
                count = min(len(a), len(b))
                if count < 8 or len(set(a)) < len(a) or len(set(b)) < len(b):
                    continue
                right = (
                    "in __iter__, use get_worker_info(): itertools.islice(examples, info.id, None, info.num_workers)"
                )
                if a[:count] == b[:count]:
                    seen = (
                        f"{len(rows)} workers yield the same examples: the first {count} rows of two workers are equal"
                    )
                    record.falsify(pass_.loader["made_at"], seen, right)
                elif set(a) == set(b):
                    seen = f"two of {len(rows)} workers yield the same {len(a)} examples, in another order"
                    record.hint(pass_.loader["made_at"], seen, right)


@claim("TR-DATA-005", "no data set that stores its examples as tensors was read twice in the training process")
def reading_changes_no_example(run: Run, record: Record) -> None:
    """Reading an example for the second time changes it in storage, and the changed example is in the batch.

    The first read may fill a cache, and is not judged. A dictionary with entries for fewer than a quarter of the
    examples does not count as a cache, since it may contain buffers. Counters, priorities and memories beside the
    examples are not inputs. Workers are left out: they change copies, which are new in every pass.
    """
    for history, trains in _histories(run):
        whole: dict[tuple[object, ...], int] = Counter()
        for pass_ in history.passes:
            if pass_.end is None or pass_.loader["loader"] not in trains:
                continue
            key = (pass_.loader["data"], pass_.begin["at"])
            whole[key] += 1
            compared, changed = pass_.end["stored"]
            if whole[key] == 1 or not compared:
                continue
            record.tried += compared
            if changed:
                record.falsify(
                    pass_.loader["made_at"],
                    f"in pass {whole[key]}, {pass_.loader['dataset']}.__getitem__ changes the stored tensors of "
                    f"{changed} of {compared} compared examples; the changes accumulate over the epochs",
                    "do not change stored tensors in place: write x = x + noise, not x += noise, or x = "
                    "self.x[index].clone()",
                )
                break


@claim("TR-DATA-006", "no pass over a data loader was completed")
def every_example_is_read(run: Run, record: Record) -> None:
    """A sampler by weights has fewer weights than there are examples, so it never draws the last examples.

    All other cases may be intended, and are hints: missing or repeated examples of a user-defined sampler, a dropped
    last batch, an evaluation with replacement, and repeated examples on ranks in an evaluation.
    """
    for process in run.processes:
        history = history_of(process)
        trains = training_loaders(process)
        evaluates = {forward["loader"] for forward, _ in process.evaluations} - trains
        for number, loader in history.loaders.items():
            if number not in trains | evaluates or not loader["examples"]:
                continue
            size, weights = loader["examples"], loader["weights"]
            ends = [p.end for p in history.passes if p.loader is loader and p.end is not None]
            if weights is not None and weights < size:
                record.falsify(
                    loader["made_at"],
                    f"the sampler has {weights} weights for {size} examples, so the last {size - weights} examples are "
                    "never read; weights of classes were passed, not weights of examples",
                    "pass one weight per example: WeightedRandomSampler(class_weights[labels], len(labels))",
                )
            record.tried += len(ends) or weights is not None
            if not ends:
                continue
            end = ends[-1]
            # At most one hint for a loader, about its last whole pass: the most specific branch comes first.
            missing = size - (end["distinct"] or size)
            repeated = end["rows"] - (end["distinct"] or end["rows"])
            dropped = size - end["rows"] if loader["drop_last"] and end["order"] is not None else 0
            # If the order changes, every pass may leave out other examples, such as an incomplete last batch.
            same = len({e["distinct"] for e in ends}) == 1
            varies = missing <= size // 10 and number in trains and len({e["order"] for e in ends}) == len(ends)
            if loader["random"] is None and len(ends) > 1 and same and missing > 0 and not varies:
                seen = f"{loader['sampler']} leaves out {missing} of {size} examples in each pass"
                record.hint(loader["made_at"], seen, "yield all indices in the sampler, including the last batch")
            elif loader["random"] is None and repeated > 0:
                seen = f"{loader['sampler']} repeats examples: {repeated} of {end['rows']} in one pass are repetitions"
                record.hint(loader["made_at"], seen, "yield each index once in the sampler")
            elif number in evaluates and not loader["replicas"] and dropped > 0:
                seen = f"an evaluation leaves out {dropped} of {size} examples, because drop_last is True"
                record.hint(loader["made_at"], seen, "pass drop_last=False to the DataLoader of an evaluation")
            elif number in trains and not loader["replicas"] and dropped > size // 10:
                seen = f"each epoch leaves out {dropped} of {size} examples, because drop_last is True"
                record.hint(loader["made_at"], seen, "use smaller batches, or drop_last=False")
            elif number in evaluates and loader["replacement"]:
                seen = f"an evaluation draws its {end['rows']} examples with replacement ({loader['sampler']})"
                record.hint(
                    loader["made_at"], seen, "evaluate each example once: DataLoader(dataset) without a sampler"
                )
            elif number in evaluates and loader["replicas"] and end["rows"] * loader["replicas"] > size:
                seen = (
                    f"{end['rows'] * loader['replicas'] - size} examples are evaluated twice: the sampler pads the "
                    "ranks to equal lengths"
                )
                record.hint(loader["made_at"], seen, "drop the padding examples when the results are gathered")


@claim("TR-DATA-007", "no loader without shuffling whose labels are known was trained on")
def batches_have_several_labels(run: Run, record: Record) -> None:
    """Labels are sorted over a pass, so most batches have one label.

    This is a hint, since the data may be a time series. The claim is falsified if all of these hold:

    - The same examples are read in several whole passes, by torch's sequential sampler, from a data set with a length.
    - The pass has at least half as many steps as batches.
    - The labels are the targets of a cross-entropy with one label per row, and there are at least three.
    - No probe shows that an output depends on other rows of the batch, as where the rows are steps of one sequence.

    This rules out classes that are learned one after the other, which would be read only once, and a time series, which
    would not return to its first class in every epoch.
    """
    for process in run.processes:
        history, trains = history_of(process), training_loaders(process)
        scored = {
            loss["labels"]
            for event in process.of("backward")
            for loss in event["losses"]
            if loss["function"] in ("cross_entropy", "nll_loss")
        }
        steps = [event["n"] for event in process.of("step")]
        probes = [event for event in process.of("probe") if event["probe"] == "rows" and not event["failed"]]
        mixing = {event["model"] for event in probes if event["others"] > MIXED}
        in_time = {forward["loader"] for forward, _ in process.training_forwards if forward["model"] in mixing}
        passes: Counter[tuple[object, ...]] = Counter()
        for pass_ in history.passes:
            loader, begin, end = pass_.loader, pass_.begin, pass_.end
            labels = end["labels"] if end is not None else None
            if labels is None or loader["loader"] not in trains or labels["batches"] < 4 or labels["distinct"] < 2:
                continue
            record.tried += labels["batches"]
            if labels["sorted"] and 2 * labels["one_label"] > labels["batches"]:
                passes[loader["data"], begin["at"]] += 1
                again = passes[loader["data"], begin["at"]] > 1
                plain = loader["sampler"] == "SequentialSampler" and not loader["iterable"]
                # If a step takes the gradient of a whole epoch, the order does not matter.
                often = end is not None and 2 * sum(begin["n"] < n < end["n"] for n in steps) >= labels["batches"]
                sure = again and plain and often and loader["batch"] in scored and labels["distinct"] > 2
                sure = sure and loader["loader"] not in in_time
                add = record.falsify if sure else record.hint
                add(
                    loader["made_at"],
                    f"{labels['one_label']} of {labels['batches']} batches have a single label: the examples are "
                    "sorted by label and not shuffled" + ("; every epoch begins with the same label" if again else ""),
                    "pass shuffle=True to the DataLoader",
                )


@claim(
    "TR-DATA-008",
    "no sampler for several ranks was trained on under DistributedDataParallel",
    premises=("TR-RANK-002",),
)
def samplers_know_the_number_of_ranks(run: Run, record: Record) -> None:
    """A sampler divides the examples by a number other than the number of ranks whose gradients are averaged.

    A sharded model has fewer replicas than processes, so only DistributedDataParallel over all processes counts.
    """
    for process in run.ranks:
        world = process.start["world_size"]
        if not process.has_ddp or any(event["group"] != world for event in process.of("ddp")):
            continue
        history = history_of(process)
        for number in training_loaders(process) & set(history.loaders):
            loader = history.loaders[number]
            if loader["replicas"] is None:
                continue
            record.tried += 1
            if loader["replicas"] != world:
                record.falsify(
                    loader["made_at"],
                    f"{loader['sampler']} divides the examples among {loader['replicas']} replicas, but {world} ranks "
                    "train",
                    "create DistributedSampler(dataset) without num_replicas and rank: it gets both from the process "
                    "group",
                )


@claim("TR-DATA-009", "no evaluation has read a loader twice, completely and in the same order")
def evaluations_see_the_same_values(run: Run, record: Record) -> None:
    """The same examples have other values in the next evaluation, such as after random augmentation.

    Always a hint: random masks may be the task (masked language models), and so may several random crops of an image.
    """
    for process in run.processes:
        history = history_of(process)
        evaluates = {forward["loader"] for forward, _ in process.evaluations} - training_loaders(process)
        orders: dict[tuple[object, ...], int] = {}
        for pass_ in history.passes:
            end = pass_.end
            if end is None or pass_.loader["loader"] not in evaluates or end["order"] is None or end["content"] is None:
                continue
            key = (pass_.loader["data"], pass_.begin["at"], end["order"])
            record.tried += key in orders
            if orders.setdefault(key, end["content"]) != end["content"]:
                record.hint(
                    pass_.loader["made_at"],
                    f"the same {end['rows']} examples have different values in two evaluations: they are augmented at "
                    "random",
                    "evaluate without augmentation; both parts of a random_split share the transform of the data set",
                )


@claim("TR-DATA-010", "no data loader was read")
def every_epoch_has_batches(run: Run, record: Record) -> None:
    """Passes over a loader that was read before have no batch.

    A single empty pass is a hint: it may be the end of a loop over a stream. Empty passes after two or more whole ones
    are a hint, too. An iterator would be used up by the first pass, so here the data set may select examples, and
    sometimes none.
    """
    for process in run.processes:
        history = history_of(process)
        used = training_loaders(process) | {forward["loader"] for forward, _ in process.evaluations}
        for number in used & set(history.loaders):
            loader = history.loaders[number]
            record.tried += sum(pass_.loader is loader for pass_ in history.passes)
            empty = [event for event in process.of("pass_empty") if event["loader"] == number]
            # A loop over groups of batches may ask an iterator that has ended again, and go on: with its last group, or
            # with the next pass.
            passes = [pass_ for pass_ in history.passes if pass_.loader is loader]
            ended = {pass_.begin["index"] for pass_ in passes if pass_.end is not None}
            later = [pass_.begin["n"] for pass_ in passes]
            later += [forward["n"] for forward, _ in process.training_forwards if forward["loader"] == number]
            grouped = {e["at"] for e in empty if e["index"] in ended and e["n"] < max(later, default=0)}
            # Where torch's sampler begins a new pass, the data set has no example, and no iterator is used up.
            is_new = not loader["iterable"] and loader["random"] is not None
            empty = [e for e in empty if e["at"] not in grouped and (e["index"] in ended or not is_new)]
            if empty:
                whole = [p for p in history.passes if p.loader is loader and p.end is not None and p.end["batches"]]
                add = record.falsify if len(empty) > 1 >= len(whole) else record.hint
                add(
                    empty[0]["at"],
                    f"{len(empty)} passes over a loader of {loader['dataset']} deliver no batch, after an earlier pass "
                    "with batches: an iterator is used up",
                    "create the iterator, or the generator of the data set, in each epoch: for batch in loader",
                )


@claim("TR-DATA-011", "no loader without shuffling was trained on")
def training_reads_more_than_the_first_batch(run: Run, record: Record) -> None:
    """Training reads only the first batch of a loader, again and again, while an evaluation reads whole passes.

    Without such an evaluation, this may be a test whether the model can fit one batch, which some libraries offer.
    """
    for process in run.processes:
        history = history_of(process)
        trains = training_loaders(process)
        evaluated = {p.loader["loader"] for p in history.passes if p.end is not None} - trains
        for number in trains & set(history.loaders):
            loader = history.loaders[number]
            passes = [pass_ for pass_ in history.passes if pass_.loader is loader]
            if loader["random"] is not False:
                continue
            record.tried += 1
            # The last pass may still be running when the trace ends, so one pass may be neither whole nor left.
            left = [pass_.left for pass_ in passes if pass_.left is not None and pass_.left["batches"] == 1]
            orders = {event["order"] for event in left}
            rows = left[0]["rows"] if left else 0
            if len(left) < 4 or len(left) < len(passes) - 1 or len(orders) > 1 or not rows < (loader["examples"] or 0):
                continue
            # Libraries read one batch for their own purposes, such as a dry run, so the script itself must ask for it.
            is_direct = all(pass_.begin["direct"] for pass_ in passes)
            add = record.falsify if evaluated and is_direct else record.hint
            add(
                passes[0].begin["at"],
                f"each of {len(passes)} passes reads only the first batch, the same {rows} of {loader['examples']} "
                "examples",
                "call iter(loader) once, before the loop, or write `for batch in loader`; next(iter(loader)) always "
                "returns the first batch",
            )


@claim("TR-DATA-012", "no model was both trained and evaluated, with a loss, on floating-point inputs")
def evaluated_inputs_have_the_scale_of_the_training(run: Run, record: Record) -> None:
    """Training inputs are standardized, and evaluated inputs are raw: pixels from 0 to 1 or 255, or of a larger scale.

    A script may evaluate inputs of another distribution on purpose, and add noise in the training. Therefore all
    evaluations with a loss must have raw inputs, and mean and standard deviation must be equal in training and
    evaluation after both are scaled to the range 0 to 1. Other differences are hints if they are large: more than 4
    standard deviations between the means, or a factor of more than 4 between the standard deviations.
    """
    for process in run.processes:
        models = {forward["model"] for forward, _ in process.training_forwards}
        for model in models:
            trained = [s for f, _ in process.training_forwards if f["model"] == model for s in f.get("scales", [])]
            evaluations = [(f, loss) for f, loss in process.evaluations if f["model"] == model and f.get("scales")]
            tested = [(f, s) for f, loss in evaluations if loss for s in f["scales"]]
            if not trained or not tested:
                continue
            record.tried += len(tested)
            mean, deviation, low, high = (sum(column) / len(trained) for column in zip(*trained, strict=True))
            # Standardized inputs, with a tolerance for the noise of few batches.
            standard = abs(mean) < 0.3 and 0.7 < deviation < 1.4 and low < -0.5
            if not low < high:
                continue
            # Mean and deviation after the inputs are scaled to the range 0 to 1: a linear change does not affect them.
            scaled_mean, scaled_deviation = (mean - low) / (high - low), deviation / (high - low)
            same = all(
                abs((s[0] - s[2]) / (s[3] - s[2]) - scaled_mean) < 0.15 * max(scaled_mean, 0.2)
                and abs(s[1] / (s[3] - s[2]) - scaled_deviation) < 0.15 * scaled_deviation
                for _, s in tested
                if s[3] > s[2]
            )
            unit = all(s[2] >= 0 and 0.5 < s[3] <= 1 and 0.02 < s[1] < 0.5 for _, s in tested)
            bytes_ = all(s[2] >= 0 and 20 < s[3] <= 255 and s[1] > 5 for _, s in tested)
            first, (center, spread, *_) = tested[0]
            seen = (
                f"training inputs have mean {mean:.3g} and standard deviation {deviation:.3g}; evaluated inputs have "
                f"mean {center:.3g} and standard deviation {spread:.3g}"
            )
            right = "apply the same normalization, with the mean and deviation of the training set, in the evaluation"
            wide = all(s[1] > 4 * deviation for _, s in tested)
            if standard and same and (unit or bytes_ or wide):
                scale = " from 0 to 1" if unit else " from 0 to 255" if bytes_ else ""
                record.falsify(first["at"], f"{seen}: evaluated inputs are raw values{scale}", right)
            elif all(
                s[1] > 4 * deviation or 4 * s[1] < deviation or abs(s[0] - mean) > 4 * deviation for _, s in tested
            ):
                record.hint(first["at"], seen, right)


@claim("TR-DATA-013", "transformers.Trainer removed no column of numbers whose name is also in the batch")
def columns_reach_the_collator(run: Run, record: Record) -> None:
    """A column of the data set is removed before the collator, and the batch has a constant in place of the column.

    The constant is the default of the collator for a missing key. A collator that computes the column from other
    columns, such as lengths, would give different numbers, and a collator that does not need the column gives none.
    """
    for process in run.processes:
        history = history_of(process)
        trains = training_loaders(process)
        columns: dict[tuple[int, str], list[Event]] = defaultdict(list)
        for event in process.of("removed_column"):
            if event["loader"] in trains & set(history.loaders):
                columns[event["loader"], event["column"]].append(event)
        for (number, name), events in columns.items():
            record.tried += len(events)
            # The column must vary. If it were constant, a constant in its place would lose nothing.
            varied = [event for event in events if len(event["removed"]) > 1 and event["rows"] > 1]
            constants = {tuple(event["made"]) for event in events}
            if len(varied) >= 2 and len(constants) == 1 and len(events[0]["made"]) == 1:
                record.falsify(
                    history.loaders[number]["made_at"],
                    f"the Trainer removes the column {name!r} (values {numbers(varied[0]['removed'])}), because the "
                    f"model's forward has no such argument; the collator then fills in {events[0]['made'][0]:g}",
                    "pass remove_unused_columns=False to TrainingArguments",
                )


@claim("TR-DATA-014", "no random numbers were drawn after a seed was set inside the loop, or in workers")
def steps_draw_different_numbers(run: Run, record: Record) -> None:
    """The generator is seeded with one number before every step, or in a worker before every example.

    1. In five successive steps (`SEEDED_STEPS`) with different inputs, the generator has the same states before and
       after the forward with gradients, so noise and the masks of dropout are the same. With equal inputs, the noise
       may be fixed on purpose. The finding is a hint if numbers are drawn only before the forward, without an
       evaluation in between: these numbers may be a fixed projection.
    2. A worker sets a seed in every batch, and has the same state after every batch, but another one before the first.
       A fixed augmentation would be seeded with the number of the example, and the states would differ. The finding is
       a hint, since all examples may share one permutation of their features.
    """
    for _, _, windows in windows_of(run):
        last: tuple[object, ...] | None = None
        count = 0
        inputs: set[str] = set()
        for window in windows:
            facts: Event = window.event.get("seeded", {})
            state = tuple(facts.get(key) for key in ("seed", "start", "before", "after"))
            record.tried += bool(facts)
            draws = facts and (
                facts["before"] != facts["after"] or (facts["start"] != facts["before"] and not facts["evaluated"])
            )
            count = (count + 1 if state == last else 1) if draws else 0
            inputs = {*(inputs if count > 1 else ()), *(backward.input for backward in window.passes)}
            last = state
            if count >= SEEDED_STEPS and len(inputs) >= count:
                (record.falsify if facts["before"] != facts["after"] else record.hint)(
                    facts["at"],
                    f"torch.manual_seed({facts['seed']}) is called before each of {count} successive steps, and random "
                    "numbers are then drawn for the training: dropout and noise are the same in every step",
                    "set the seed once, before the loop",
                )
                break
    for history, trains in _histories(run):
        for pass_ in history.passes:
            events: dict[int, list[Event]] = defaultdict(list)
            for event in pass_.workers:
                if "states" in event and pass_.loader["loader"] in trains:
                    events[event["worker"]].append(event)
            for worker, (begin, *later) in events.items():
                record.tried += len(later) > 2
                for name in begin["states"] if len(later) > 2 else ():
                    ends = {event["states"].get(name) for event in later}
                    # A generator that draws nothing after it was seeded once keeps its state, too.
                    counts = [event.get("seeded", {}).get(name, 0) for event in later]
                    is_seeded = all(a < b for a, b in pairwise(counts))
                    is_used = all(name in event.get("drawn", ()) for event in later)
                    if len(ends) == 1 and begin["states"][name] not in ends and is_seeded and is_used:
                        record.hint(
                            pass_.loader["made_at"],
                            f"worker {worker} has the same state of {name} after each of {len(later)} batches: the "
                            "generator is seeded for every example, so all examples get the same random numbers",
                            "do not seed generators in the data set, or seed them with the number of the example",
                        )

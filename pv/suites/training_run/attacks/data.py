"""Attacks on the claims about examples."""

from types import ModuleType

from hypothesis import assume, given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import TEST, TRAIN, Events, Plan, attack, of_kind, plans, readable


def of_loader(events: Events, number: int, *kinds: str) -> Events:
    """Return the events of one loader that have one of the given kinds."""
    return [event for event in of_kind(events, *kinds) if event["loader"] == number]


@given(st.sampled_from([1, 2]).flatmap(lambda ranks: st.tuples(plans(ranks=ranks), st.just(ranks))))
def falsify_epochs_have_different_orders(subject: ModuleType, drawn: tuple[Plan, int]) -> None:
    """Read all passes of a random sampler in one order."""
    plan, ranks = drawn

    def repeat(events: Events) -> None:
        for event in of_loader(events, TRAIN, "pass_end"):
            event.update(order=1, content=1)

    assume(not plan.stream)
    attack(subject, "TR-DATA-001", plan, repeat, ranks=ranks)


@given(plans())
def falsify_evaluated_examples_are_not_trained_on(subject: ModuleType, plan: Plan) -> None:
    """Evaluate some examples that were trained on, and some others."""

    def overlap(events: Events) -> None:
        of_loader(events, TEST, "loader")[0]["readable"] = readable(range(70, 96))
        for event in of_loader(events, TEST, "rows"):
            event["prints"] = list(range(70, 96))

    attack(subject, "TR-DATA-002", plan, overlap)


@given(plans(), st.booleans())
def falsify_workers_draw_different_numbers(subject: ModuleType, plan: Plan, over_passes: bool) -> None:
    """Seed workers with the same number in all passes, or in all workers."""

    def seed(events: Events) -> None:
        for event in of_kind(events, "worker"):
            event["states"]["random"] -= 1000 * event["index"] if over_passes else 100 * event["worker"]

    attack(subject, "TR-DATA-003", plan, seed, hint=plan.stream)


@given(plans())
def falsify_streams_are_divided_over_workers(subject: ModuleType, plan: Plan) -> None:
    """Read the same rows of a stream in both workers."""

    def repeat(events: Events) -> None:
        for event in of_kind(events, "worker"):
            if "rows" in event:
                event["rows"] = [row - 8 * event["worker"] for row in event["rows"]]

    assume(plan.stream)
    attack(subject, "TR-DATA-004", plan, repeat)


@given(plans())
def falsify_reading_changes_no_example(subject: ModuleType, plan: Plan) -> None:
    """Change stored examples in every pass."""

    def add_up(events: Events) -> None:
        for event in of_loader(events, TRAIN, "pass_end"):
            event["stored"] = [8, 8]

    attack(subject, "TR-DATA-005", plan, add_up)


@given(plans())
def falsify_every_example_is_read(subject: ModuleType, plan: Plan) -> None:
    """Pass the weights of three classes to a sampler, not the weights of examples."""

    def weigh_classes(events: Events) -> None:
        of_loader(events, TRAIN, "loader")[0].update(sampler="WeightedRandomSampler", weights=3, replacement=True)

    assume(not plan.stream)
    attack(subject, "TR-DATA-006", plan, weigh_classes)


@given(plans())
def falsify_batches_have_several_labels(subject: ModuleType, plan: Plan) -> None:
    """Read examples that are sorted by label without shuffling."""

    def sort(events: Events) -> None:
        for event in of_loader(events, TRAIN, "pass_end"):
            event["labels"] = {"batches": 4, "one_label": 4, "distinct": 3, "sorted": True}
        loss = next(loss for event in of_kind(events, "backward") for loss in event["losses"])
        loader = of_loader(events, TRAIN, "loader")[0]
        loader.update(sampler="SequentialSampler", random=False, iterable=False, batch=loss["labels"])

    assume(not plan.logits)
    attack(subject, "TR-DATA-007", plan, sort)


@given(plans(ranks=2))
def falsify_samplers_know_the_number_of_ranks(subject: ModuleType, plan: Plan) -> None:
    """Divide the examples among twice as many replicas as there are ranks."""

    def double(events: Events) -> None:
        of_loader(events, TRAIN, "loader")[0]["replicas"] = 4

    attack(subject, "TR-DATA-008", plan, double, ranks=2)


@given(plans())
def falsify_evaluations_see_the_same_values(subject: ModuleType, plan: Plan) -> None:
    """Evaluate the same examples with different values in each epoch."""

    def augment(events: Events) -> None:
        for event in of_loader(events, TEST, "pass_end"):
            event["content"] = event["index"]

    attack(subject, "TR-DATA-009", plan, augment, hint=True)


@given(plans())
def falsify_every_epoch_has_batches(subject: ModuleType, plan: Plan) -> None:
    """Replace the ends of all training passes but the first by two empty passes."""

    def run_out(events: Events) -> None:
        later = of_loader(events, TRAIN, "pass_end")[1:]
        events[:] = [event for event in events if event not in later]
        events += [{"event": "pass_empty", "n": 0, "loader": TRAIN, "index": 1, "at": "t.py:3"} for _ in range(2)]

    attack(subject, "TR-DATA-010", plan, run_out)


@given(plans())
def falsify_training_reads_more_than_the_first_batch(subject: ModuleType, plan: Plan) -> None:
    """Replace the training passes by six passes that are left after the same first batch."""

    def begin_again(events: Events) -> None:
        of_loader(events, TRAIN, "loader")[0].update(random=False, sampler="SequentialSampler")
        begin, end = (of_loader(events, TRAIN, kind)[0] for kind in ("pass", "pass_end"))
        position = events.index(begin)
        events[:] = [e for e in events if not (e["event"] in ("pass", "pass_end") and e["loader"] == TRAIN)]
        passes: Events = []
        for index in range(6):
            left = {"event": "pass_left", "index": index, "batches": 1, "rows": 8, "order": 3}
            passes += [{**begin, "index": index}, {**end, **left}]
        events[position:position] = passes

    assume(not plan.stream)
    attack(subject, "TR-DATA-011", plan, begin_again)


@given(plans(), st.sampled_from([1.0, 255.0]))
def falsify_evaluated_inputs_have_the_scale_of_the_training(subject: ModuleType, plan: Plan, white: float) -> None:
    """Evaluate raw pixels from 0 to `white`."""

    def leave_raw(events: Events) -> None:
        for event in of_loader(events, TEST, "forward"):
            event["scales"] = [[white / 2, white / 4, 0.0, white]]

    attack(subject, "TR-DATA-012", plan, leave_raw)


@given(plans())
def falsify_columns_reach_the_collator(subject: ModuleType, plan: Plan) -> None:
    """Let the collator fill in one constant for a removed column."""

    def default(events: Events) -> None:
        for event in of_kind(events, "removed_column"):
            event["made"] = [1.0]

    attack(subject, "TR-DATA-013", plan, default)


@given(plans(), st.booleans())
def falsify_steps_draw_different_numbers(subject: ModuleType, plan: Plan, in_workers: bool) -> None:
    """Set a seed before every step, or for every example of a worker."""

    def seed(events: Events) -> None:
        for event in of_kind(events, "step"):
            event["seeded"] = {"seed": "7", "start": 1, "before": 1, "after": 2, "evaluated": False, "at": "t.py:5"}

    def seed_examples(events: Events) -> None:
        for event in of_kind(events, "worker"):
            if event["batch"]:
                event.update(drawn=["random"], seeded={"random": 8 * event["batch"]})
                event["states"]["random"] = 5

    attack(subject, "TR-DATA-014", plan, seed_examples if in_workers else seed, hint=in_workers)

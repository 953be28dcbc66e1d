"""Attacks on the claims about tokens, masks and probes."""

from collections.abc import Callable
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, of, plans


def set_probe(name: str, **facts: object) -> Callable[[Events], None]:
    """Return an edit that sets facts of a probe."""

    def edit(events: Events) -> None:
        for event in of(events, "probe"):
            if event["probe"] == name:
                event.update(facts)

    return edit


def shift_labels(events: Events, offset: int) -> None:
    """Change the counts of equal tokens so that all labels are the token at t + offset."""
    for event in of(events, "labels"):
        for shift in event["facts"]["shift"]:
            for name, pair in shift["counts"].items():
                pair[0] = pair[1] if name == str(offset) else 1


@given(plans(), st.sampled_from([0, 2]))
def falsify_labels_are_the_next_tokens(subject: ModuleType, plan: Plan, offset: int) -> None:
    def edit(events: Events) -> None:
        shift_labels(events, offset)
        for event in of(events, "labels"):
            event["facts"]["delivered"] = True
        set_probe("future", offset=offset)(events)

    attack(subject, "TR-SHIFT-001", plan, edit)


@given(plans(), st.integers(3, 50), st.booleans())
def falsify_padding_is_not_scored(subject: ModuleType, plan: Plan, real: int, in_text: bool) -> None:
    def edit(events: Events) -> None:
        shift_labels(events, 3)  # labels that are no tokens
        for event in of(events, "labels"):
            event["facts"]["padding"].update(scored=12, used=12, label=0, same_label_elsewhere=real)

    def text(events: Events) -> None:
        """Score padding in a language model whose texts do not contain the padding token."""
        for event in of(events, "labels"):
            padding = event["facts"]["padding"]
            padding.update(scored=8, used=8, label=padding["token"], same_label_elsewhere=0, in_texts=0, ends=[2])

    attack(subject, "TR-MASK-001", plan, text if in_text else edit)


@given(plans(), st.booleans())
def falsify_ends_are_scored(subject: ModuleType, plan: Plan, masked: bool) -> None:
    def edit(events: Events) -> None:
        for event in of(events, "labels"):
            event["facts"]["ends"].update(masked=masked, scored_ends=0, scored_anywhere=0)

    attack(subject, "TR-MASK-002", plan, edit)


@given(plans(), st.sampled_from(["unused", "reversed", "added"]))
def falsify_mask_is_used(subject: ModuleType, plan: Plan, kind: str) -> None:
    edits = {
        "unused": set_probe("padding", real=0.3, mask_used=False),
        "reversed": set_probe("padding", real=0.3, other_tokens=0.0),
        "added": set_probe("attention", masks_of_ones=2),
    }
    attack(subject, "TR-MASK-003", plan, edits[kind])


@given(plans())
def falsify_masked_tokens_are_predicted(subject: ModuleType, plan: Plan) -> None:
    def edit(events: Events) -> None:
        shift_labels(events, 0)
        for event in of(events, "labels"):
            event["facts"]["masked"]["labels"] = 40

    attack(subject, "TR-MASK-004", plan, edit)


@given(plans(), st.booleans())
def falsify_no_token_sees_the_future(subject: ModuleType, plan: Plan, local: bool) -> None:
    kinds = {"causal": 1, "full": 1} if local else {"causal": 0, "full": 2}
    edit = set_probe("future", early=0.5, own=0.5, local=local, attention=kinds, reach=2, clean=5 * local)
    attack(subject, "TR-PROBE-001", plan, edit)


@given(plans())
def falsify_padding_changes_nothing(subject: ModuleType, plan: Plan) -> None:
    attack(subject, "TR-PROBE-002", plan, set_probe("padding", real=0.3), hint=True)


@given(plans(), st.booleans())
def falsify_rows_do_not_mix(subject: ModuleType, plan: Plan, layer: bool) -> None:
    mixed = set_probe("rows", others=0.2, changed_rows=5)
    edit = set_probe("rows", language=False, others=0.2, changed_rows=3, rows_as_time="encoder (LSTM)")
    attack(subject, "TR-PROBE-003", plan, edit if layer else mixed)


@given(plans(), st.booleans())
def falsify_heads_are_parts_of_features(subject: ModuleType, plan: Plan, merged: bool) -> None:
    pair = [[6, 12, 32], [6, 4, 12, 8]]
    attack(subject, "TR-PROBE-004", plan, set_probe("attention", mixed_heads=[pair[::-1] if merged else pair]))

"""Attacks on the claims about tokens, masks and probes."""

from collections.abc import Callable
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, of_kind, plans


def set_probe(name: str, **facts: object) -> Callable[[Events], None]:
    """Return an edit that sets fields of the events of a probe."""

    def edit(events: Events) -> None:
        for event in of_kind(events, "probe"):
            if event["probe"] == name:
                event.update(facts)

    return edit


def shift_labels(events: Events, offset: int) -> None:
    """Change the counts of equal tokens so that all labels are the token at t + offset."""
    for event in of_kind(events, "labels"):
        for shift in event["facts"]["shift"]:
            for name, pair in shift["counts"].items():
                pair[0] = pair[1] if name == str(offset) else 1


@given(plans(), st.sampled_from([0, 2]))
def falsify_labels_are_the_next_tokens(subject: ModuleType, plan: Plan, offset: int) -> None:
    """Shift the labels twice (by an offset of 2), or not at all."""

    def edit(events: Events) -> None:
        shift_labels(events, offset)
        for event in of_kind(events, "labels"):
            event["facts"]["delivered"] = True
        set_probe("future", offset=offset)(events)

    attack(subject, "TR-SHIFT-001", plan, edit)


@given(plans(), st.integers(3, 50), st.booleans())
def falsify_padding_is_not_scored(subject: ModuleType, plan: Plan, real: int, in_text: bool) -> None:
    """Score padding: in a language model (`in_text`), or with the class of some real tokens.

    Args:
        subject: The claims.
        plan: The correct run.
        real: Number of real tokens with the label of the padding, in a batch of the classifier.
        in_text: Whether the model is a language model, whose texts do not contain the padding token.
    """

    def score_in_classifier(events: Events) -> None:
        shift_labels(events, 3)  # so that the labels are no next tokens
        for event in of_kind(events, "labels"):
            event["facts"]["padding"].update(scored=12, used=12, label=0, same_label_elsewhere=real)

    def score_in_text(events: Events) -> None:
        for event in of_kind(events, "labels"):
            padding = event["facts"]["padding"]
            padding.update(scored=8, used=8, label=padding["token"], same_label_elsewhere=0, in_texts=0, ends=[2])

    attack(subject, "TR-MASK-001", plan, score_in_text if in_text else score_in_classifier)


@given(plans(), st.booleans())
def falsify_ends_are_scored(subject: ModuleType, plan: Plan, masked: bool) -> None:
    """Score no end of a text; the model has a mask (`masked`), or batches are padded to their longest row."""

    def edit(events: Events) -> None:
        for event in of_kind(events, "labels"):
            event["facts"]["ends"].update(masked=masked, scored_ends=0, scored_anywhere=0)

    attack(subject, "TR-MASK-002", plan, edit)


@given(plans(), st.sampled_from(["unused", "inverted", "added"]))
def falsify_mask_is_used(subject: ModuleType, plan: Plan, kind: str) -> None:
    """Ignore the mask of padding, invert it, or add a mask of zeros and ones to the scores of attention."""
    edits = {
        "unused": set_probe("padding", real=0.3, mask_used=False),
        "inverted": set_probe("padding", real=0.3, other_tokens=0.0),
        "added": set_probe("attention", masks_of_ones=2),
    }
    attack(subject, "TR-MASK-003", plan, edits[kind])


@given(plans())
def falsify_masked_tokens_are_predicted(subject: ModuleType, plan: Plan) -> None:
    """Take the labels from the masked input."""

    def edit(events: Events) -> None:
        shift_labels(events, 0)
        for event in of_kind(events, "labels"):
            event["facts"]["masked"]["labels"] = 40

    attack(subject, "TR-MASK-004", plan, edit)


@given(plans(), st.booleans())
def falsify_no_token_sees_the_future(subject: ModuleType, plan: Plan, local: bool) -> None:
    """Let logits before the changed tokens change: only the last ones (`local`), or without any causal attention."""
    kinds = {"causal": 1, "full": 1} if local else {"causal": 0, "full": 2}
    edit = set_probe("future", early=0.5, own=0.5, local=local, attention=kinds, reach=2, clean=5 * local)
    attack(subject, "TR-PROBE-001", plan, edit)


@given(plans())
def falsify_padding_changes_nothing(subject: ModuleType, plan: Plan) -> None:
    attack(subject, "TR-PROBE-002", plan, set_probe("padding", real=0.3), hint=True)


@given(plans(), st.booleans())
def falsify_rows_do_not_mix(subject: ModuleType, plan: Plan, rows_as_time: bool) -> None:
    """Mix all rows of a language model, or let a layer take the rows for time (`rows_as_time`)."""
    all_rows = set_probe("rows", others=0.2, changed_rows=5)
    some_rows = set_probe("rows", language=False, others=0.2, changed_rows=3, rows_as_time="encoder (LSTM)")
    attack(subject, "TR-PROBE-003", plan, some_rows if rows_as_time else all_rows)


@given(plans(), st.booleans())
def falsify_heads_are_parts_of_features(subject: ModuleType, plan: Plan, merged: bool) -> None:
    """Split off heads by a view without a transpose, or merge them in this way (`merged`)."""
    pair = [[6, 12, 32], [6, 4, 12, 8]]
    attack(subject, "TR-PROBE-004", plan, set_probe("attention", mixed_heads=[pair[::-1] if merged else pair]))

"""Attacks on the claims about parameters."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, first, of_kind, plans


@given(plans(), st.sampled_from(["none", "same", "resized", "flat"]))
def falsify_optimizer_holds_the_model(subject: ModuleType, plan: Plan, left_out: str) -> None:
    """Let the optimizer hold a parameter of no model, and leave out a parameter of the model.

    Args:
        subject: The claims.
        plan: The correct run.
        left_out: The trainable parameters of the model that are in no optimizer: none; one of the same shape; one of
            another size; or one flat parameter that has replaced all parameters.
    """

    def hold_other_parameters(events: Events) -> None:
        first(events, "held").update(in_no_model=1, in_no_model_shapes=[[4, 3]])
        if left_out != "none":
            shape = [4, 3] if left_out == "same" else [9, 3]
            first(events, "parameters").update(held=7, changed=7, left_out=["head.weight"], left_out_shapes=[shape])
        if left_out == "flat":
            facts = {"trainable": 1, "held": 0, "changed": 0, "compared": 1, "with_gradient": 1}
            first(events, "parameters").update(facts, left_out=["flat"], left_out_shapes=[[99]])
            first(events, "held").update(in_no_model=8)
            for event in of_kind(events, "step"):
                event.update(gradients=0, norm=None)

    attack(subject, "TR-PARAM-001", plan, hold_other_parameters, hint=left_out == "none")


def set_parameters(**facts: object) -> Callable[[Events], None]:
    """Return an edit that sets fields of the first `parameters` event."""
    return lambda events: first(events, "parameters").update(facts)


@given(plans())
def falsify_trainable_parameters_are_held(subject: ModuleType, plan: Plan) -> None:
    """Leave a trainable parameter of the model out of the optimizer."""
    edit = set_parameters(held=7, left_out=["head.weight"], left_out_shapes=[[4, 3]])
    attack(subject, "TR-PARAM-002", plan, edit, hint=True)


@given(plans(), st.booleans())
def falsify_layers_belong_to_the_model(subject: ModuleType, plan: Plan, in_a_list: bool) -> None:
    """Run a layer that is not registered in the model, and may be an element of a list."""
    edit = set_parameters(outside=["Linear.weight"], listed=[2, 2, 2] if in_a_list else [0, 0, 0])
    attack(subject, "TR-PARAM-003", plan, edit, hint=not in_a_list)


@given(plans(), st.sampled_from(["no_grad", "detached", "checkpoint"]), st.sampled_from(["", "drawn", "dropout"]))
def falsify_no_part_is_cut_off(subject: ModuleType, plan: Plan, way: str, missing: str) -> None:
    """Cut the gradient of a part of the model.

    Without random weights or without dropout (`missing`), the part may be a fixed encoder, and the finding is a hint.
    """
    kind = {"detached": "grad"}.get(way, way)
    part: dict[str, object] = {"how": kind, "names": ["encoder.weight"], "parameters": 1, "weights": 1, "drawn": 1}
    part |= {"changed": 0, "dropout": True, "training": True, "detached": way == "detached", "at": "t.py:3"}
    is_certain = not missing or way == "checkpoint"
    if missing:
        part[missing] = 0
    edit = set_parameters(cut=[part], without_gradient=[] if is_certain else ["encoder.weight"])
    attack(subject, "TR-PARAM-006", plan, edit, hint=not is_certain)


def set_moved(**facts: object) -> Callable[[Events], None]:
    """Return an edit that sets facts in the field `moved` of every step that has this field."""

    def edit(events: Events) -> None:
        for event in of_kind(events, "step"):
            if "moved" in event:
                event["moved"].update(facts)

    return edit


@given(plans(), st.sampled_from(["copy", "rounded", "partly"]))
def falsify_parameters_move(subject: ModuleType, plan: Plan, cause: str) -> None:
    """Let steps leave out a parameter; or round the changes of elements away: of nearly all, or of more than half."""
    facts: dict[str, dict[str, object]] = {
        "copy": {"unmoved": ["encoder.weight"]},
        "rounded": {"halves": [90, 8]},  # elements in half precision with a gradient, and changed ones among them
        "partly": {"halves": [90, 40]},
    }
    attack(subject, "TR-PARAM-004", plan, set_moved(**facts[cause]), hint=cause == "partly")


@given(plans())
def falsify_frozen_parameters_stay(subject: ModuleType, plan: Plan) -> None:
    attack(subject, "TR-PARAM-005", plan, set_moved(moved_frozen=["encoder.weight"]))


@given(plans())
def falsify_attributes_freeze(subject: ModuleType, plan: Plan) -> None:
    attack(subject, "TR-PARAM-007", plan, set_moved(marked=[["stem.weight", "requires_grad", "t.py:2"]]))


@given(plans(), st.integers(1, 6))
def falsify_new_head_is_trained(subject: ModuleType, plan: Plan, frozen: int) -> None:
    """Freeze the new last layer of a model, and a number of pretrained matrices (`frozen`)."""

    def freeze_body(events: Events) -> None:
        last = of_kind(events, "parameters")[-1]
        last["last_layer"] = last["last_layer"] | {"trained": False, "matrices": frozen + 1, "frozen": frozen}

    attack(subject, "TR-PARAM-010", replace(plan, logits=False), freeze_body)


@given(plans(), st.integers(4, 64))
def falsify_units_of_a_layer_differ(subject: ModuleType, plan: Plan, units: int) -> None:
    """Initialize a layer with a constant: its units are equal in the first steps, and at the end."""

    def equal_units(events: Events) -> None:
        last = of_kind(events, "parameters")[-1]
        last["rows"] = [["body.weight", units, 0.0, 0.1]]
        events.insert(events.index(last), dict(last))

    attack(subject, "TR-PARAM-011", plan, equal_units)


@given(plans(), st.booleans())
def falsify_tied_parameters_are_one(subject: ModuleType, plan: Plan, copied: bool) -> None:
    """Use two parameters for a tied weight: with separate values that are equal at first (`copied`), or one memory."""

    def use_two_parameters(events: Events) -> None:
        last = of_kind(events, "parameters")[-1]
        if copied:
            last["untied"] = [["embed.weight", "head.weight", True, 0.3, True]]
        else:
            last["one_storage"] = [["embed.weight", "head.weight"]]

    attack(subject, "TR-PARAM-012", plan, use_two_parameters)


@given(plans())
def falsify_moments_are_kept(subject: ModuleType, plan: Plan) -> None:
    """Take every step by a new optimizer of the same parameters."""

    def use_new_optimizers(events: Events) -> None:
        optimizer, digest = first(events, "optimizer"), 0.0
        for number, event in enumerate(of_kind(events, "step"), 100):
            position = events.index(event)
            digest, before = event["digest"], digest
            event.update(optimizer=number, step=1, digest_before=before)
            events.insert(position, optimizer | {"optimizer": number, "at": "t.py:7"})
        optimizer["optimizer"] = 99

    attack(subject, "TR-PARAM-009", plan, use_new_optimizers)


@given(plans(), st.sampled_from(["rates", "bits", "copies", "zeros"]))
def falsify_steps_change_weights(subject: ModuleType, plan: Plan, cause: str) -> None:
    """Let no step change a weight of the model.

    Args:
        subject: The claims.
        plan: The correct run.
        cause: `rates`: all rates are 0. `bits`: no bit changes, although the rate is not 0. `copies`: the optimizer
            changes copies. `zeros`: two factors of a product are 0.
    """

    def stop_updates(events: Events) -> None:
        if cause == "copies":
            shapes = [[4, 3]] * 8
            facts = {"held": 0, "changed": 0, "left_out": ["a"] * 8, "left_out_shapes": shapes}
            first(events, "parameters").update(facts)
            first(events, "held").update(outside=8, outside_shapes=shapes)
            return
        if cause == "zeros":
            set_moved(zero_matrices=[["lora.a", [2, 5]], ["lora.b", [8, 2]]])(events)
            return
        set_moved(moved=0, unmoved=["a"] if cause == "bits" else [])(events)
        if cause == "rates":
            for event in of_kind(events, "step"):
                event["rates"] = [0.0]

    attack(subject, "TR-PARAM-008", plan, stop_updates)

"""Attacks on the claims about normalization."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, of, plans


@given(plans(), st.floats(2.5, 100))
def falsify_layers_normalize_one_distribution(subject: ModuleType, plan: Plan, spread: float) -> None:
    def share(events: Events) -> None:
        for event in of(events, "shared_norm"):
            event.update(layers=2, serial=True, apart={"shift": 0.2, "spread": spread})

    attack(subject, "TR-NORM-001", plan, share)


@given(plans(), st.floats(-0.5, 0.5))
def falsify_spectral_norms_are_estimated(subject: ModuleType, plan: Plan, used: float) -> None:
    def begin_in_eval_mode(events: Events) -> None:
        for event in of(events, "spectral_norm"):
            event["norms"] = [used, 2.0]

    attack(subject, "TR-NORM-002", plan, begin_in_eval_mode)

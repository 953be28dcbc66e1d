"""Attacks on the claims about normalization."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, of_kind, plans


@given(plans(), st.floats(2.5, 100))
def falsify_layers_normalize_one_distribution(subject: ModuleType, plan: Plan, spread: float) -> None:
    """Use one layer at two depths; the variances of its inputs differ by the factor `spread`."""

    def share_layer(events: Events) -> None:
        for event in of_kind(events, "shared_norm"):
            event.update(layers=2, serial=True, apart={"shift": 0.2, "spread": spread})

    attack(subject, "TR-NORM-001", plan, share_layer)


@given(plans(), st.floats(-0.5, 0.5))
def falsify_spectral_norms_are_estimated(subject: ModuleType, plan: Plan, used: float) -> None:
    """Divide the weight by a random number (`used`) in place of its spectral norm of 2."""

    def begin_in_eval_mode(events: Events) -> None:
        for event in of_kind(events, "spectral_norm"):
            event["norms"] = [used, 2.0]

    attack(subject, "TR-NORM-002", plan, begin_in_eval_mode)


@given(plans(), st.booleans())
def falsify_batch_normalization_has_an_effect(subject: ModuleType, plan: Plan, large_eps: bool) -> None:
    """Set an eps that is larger than the variance, or a momentum that keeps only the statistics of the last batch."""

    def set_unusual_option(events: Events) -> None:
        last = next(event for event in of_kind(events, "statistics") if event["model"] == 2)
        layer = {"name": "norm", "kind": "BatchNorm1d", "variance": 0.5, "batches": 90}
        layer |= {"eps": 0.9, "momentum": 0.1} if large_eps else {"eps": 1e-5, "momentum": 0.99}
        last["unusual"] = [layer]
        # The setting must be unusual at two events at least.
        events.insert(events.index(last), dict(last))

    attack(subject, "TR-NORM-003", plan, set_unusual_option)

"""Attacks on the claims about precision."""

from types import ModuleType

from hypothesis import given
from hypothesis import strategies as st

from pv.suites.training_run.attacks.drawn import Events, Plan, attack, first, plans


@given(plans(), st.sampled_from(["stock", "most", "few"]))
def falsify_autocast_reaches_the_layers(subject: ModuleType, plan: Plan, cause: str) -> None:
    def opt_out(events: Events) -> None:
        facts = {"single": 3, "single_work": 7.0, "half_after": True, "names": ["a"], "stock": 0}
        if cause != "most":
            facts.update(single=1, single_work=2.0, stock=int(cause == "stock"))
        first(events, "parameters")["autocast"].update(facts)

    attack(subject, "TR-PRECISION-001", plan, opt_out, hint=cause == "few")

import pytest

from pv.instrument.swap import swap
from pv.suites.causal_lm import faults, model
from tests.suites.causal_lm.trying import tried


def test_weights_that_are_untied_by_a_load_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.CausalLM, "load_state_dict", model.CausalLM.load_state_dict)  # restored afterwards
    swap(model, "CausalLM.load_state_dict", faults.untied)
    (failed, _) = tried(model.CausalLM)
    assert failed.keys() == {"LOAD-001"}
    assert "embed.weight and head.weight are no longer one parameter" in failed["LOAD-001"]

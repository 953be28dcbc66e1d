import pytest

from pv.contract.claims import Falsifier
from pv.suites.training_loop import loop
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.data import falsify_each_example_once_an_epoch
from tests.suites.training_loop.planting import attack_of, claims, correct, refutation


@claims("data")
def test_claim_holds_for_the_correct_loop(claim: Falsifier) -> None:
    attack_of(claim)(bench=correct())


@pytest.mark.parametrize(
    ("mutant", "cause"),
    [
        ("drop-last", "it is without the last, incomplete batch"),
        ("window-dropped", "it is without the last, incomplete window"),
    ],
)
def test_examples_that_are_left_out_are_explained(mutant: str, cause: str) -> None:
    assert cause in refutation(mutant, "TL-DATA-001")


def test_a_training_in_eval_mode_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    right = loop.backward
    monkeypatch.setattr(loop, "backward", lambda training, window: (training.model.eval(), right(training, window))[1])
    with pytest.raises(AssertionError, match="it is a training in eval mode"):
        falsify_each_example_once_an_epoch(bench=Bench(loop.Loop()))

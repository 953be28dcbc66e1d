import pytest

from pv.suites.training_loop.numbers import close, equal_to
from tests.suites.training_loop.planting import refutation


def test_nan_is_close_to_nothing() -> None:
    assert not close(float("nan"), float("nan"))
    assert close(1e6, 1e6 + 0.5) and not close(1.0, 1.00001)


def test_every_equal_value_is_named() -> None:
    assert equal_to(2.0, {"a": 2.0, "b": 3.0, "c": 2.0 + 1e-9}) == ("a", "c")


@pytest.mark.parametrize(
    ("mutant", "claim", "cause"),
    [
        ("rate-late", "TL-RATE-001", "it is the rate of the step before"),
        ("rate-per-micro-batch", "TL-RATE-001", "it is a schedule that advances with every micro-batch"),
        ("logs-next-rate", "TL-RATE-002", "it is the rate of the next step"),
        ("logs-sum-over-tokens", "TL-LOG-001", "it is the sum over the tokens, not divided"),
        ("logs-last-micro-batch", "TL-LOG-002", "it is that of the last micro-batch"),
        ("logs-sum-of-micro-batches", "TL-LOG-002", "it is the token mean times the micro-batches of the window"),
        ("logs-last-step", "TL-LOG-003", "it is that of the last step"),
        ("logs-sum-of-steps", "TL-LOG-003", "it is the sum of the steps' means"),
        ("logs-mean-of-means", "TL-LOG-004", "it is the mean of the steps' means"),
        ("evaluation-by-examples", "TL-EVAL-001", "it is the sum over the tokens / the number of examples"),
        ("evaluation-mean-of-means", "TL-EVAL-002", "it is the mean of the batches' means"),
    ],
)
def test_cause_of_a_wrong_number(mutant: str, claim: str, cause: str) -> None:
    assert cause in refutation(mutant, claim)

import pytest
import torch

from pv.suites.training_loop.claims.cases import example, unequal
from pv.suites.training_loop.job import padded
from pv.suites.training_loop.oracle import START, norm, sums
from pv.suites.training_loop.probe import Probe, token_loss


def test_sums_are_those_of_one_padded_batch() -> None:
    found, model, batch = sums(START, unequal(5)), Probe(silent=True), padded(list(unequal(5)))
    nats = token_loss(model(batch["input_ids"]), batch["labels"], "sum")
    nats.backward()
    assert found.nats == pytest.approx(float(nats.detach()), rel=1e-12)
    assert found.tokens == int((batch["labels"][:, 1:] != -100).sum())
    for name, each in model.named_parameters():
        assert each.grad is not None
        torch.testing.assert_close(found.gradient[name], each.grad, rtol=1e-10, atol=1e-12)


def test_tied_weights_have_the_gradients_of_both() -> None:
    model = Probe(silent=True, tied=True)
    weights = {name: each.detach() for name, each in model.named_parameters()}
    apart = {"head.weight": weights["embed.weight"], **weights}
    both, found = sums(apart, unequal(3)).gradient, sums(weights, unequal(3)).gradient
    assert "head.weight" not in found
    torch.testing.assert_close(found["embed.weight"], both["embed.weight"] + both["head.weight"])


def test_nothing_scored_has_no_gradient() -> None:
    found = sums(START, [example(1, 4, 0)])
    assert (found.nats, found.tokens, norm(found.gradient)) == (0.0, 0, 0.0)


def test_norm_leaves_out_missing_gradients() -> None:
    assert norm({"a": torch.tensor([3.0, 4.0]), "b": None}) == 5.0

import torch

from pv.suites.training_loop.probe import Probe, names, token_loss


def test_positions_do_not_mix() -> None:
    probe = Probe(silent=True)
    one, two = torch.tensor([[1, 40, 41]]), torch.tensor([[1, 40, 42]])
    assert torch.equal(probe(one)[:, :2], probe(two)[:, :2])


def test_weights_are_the_same_in_every_process_and_seed() -> None:
    torch.manual_seed(3)
    one = Probe(silent=True)
    torch.manual_seed(4)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), Probe(silent=True).parameters(), strict=True))


def test_labels_are_shifted_once() -> None:
    logits = torch.zeros(1, 3, 48)
    logits[0, 0, 40] = 100.0
    assert float(token_loss(logits, torch.tensor([[1, 40, -100]]))) < 1e-6


def test_name_is_the_first_token_after_padding_on_the_left() -> None:
    assert names(torch.tensor([[0, 0, 3], [5, 40, 0], [0, 0, 0]])) == [3, 5]

import torch

from pv.suites.training_loop.network import Attention, logits_of, visible


def test_a_position_sees_itself_and_earlier_tokens_that_are_no_padding() -> None:
    seen = visible(torch.tensor([[False, True, True]]))
    assert seen.tolist() == [[[False, False, False], [False, True, False], [False, True, True]]]


def test_logits_of_a_row_are_without_its_padding() -> None:
    assert [each.shape for each in logits_of(Attention(), [[1, 2, 3], [4]])] == [(3, 16), (1, 16)]

"""The connection of ranks, and their requests to stop, without processes."""

from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but mypy sees no export

from falsifiers.rank_runs.falsify_processes import AcceleratorTensor
from reference_trainer.config.place import Place
from reference_trainer.errors import LostRankError
from reference_trainer.plan.schedule import Action
from reference_trainer.ranks.coordination import Ranks
from reference_trainer.ranks.parallel import Agreement


@pytest.mark.parametrize("timeout_s", [90, 86_400 + 90, 1_234_567])
def test_missing_rank_is_reported_with_the_whole_time_limit(timeout_s: int) -> None:
    ranks = Ranks(Place(rank=0, world_size=2), HashStore(), timeout_s)
    with (
        mock.patch.object(Ranks, "_wait", return_value=False),  # as after the time limit
        pytest.raises(LostRankError, match=rf"rank 1 did not connect within {timeout_s} s"),
    ):
        ranks.meet()


class TwoRanks:
    """The other rank sends no flags."""

    world_size = 2

    def sum_counts(self, counts_K: Tensor) -> Tensor:
        return counts_K


def test_request_to_stop_that_a_reduction_has_read_is_kept() -> None:
    requested = [True, False]  # by call
    agreement = Agreement(TwoRanks(), lambda: requested.pop(0))  # type: ignore[arg-type]  # only what is called
    assert agreement.reduce(Action.CONTINUE) is Action.CONTINUE and agreement.is_stop_requested()
    agreement.reduce(Action.CONTINUE, between_epochs=True)
    assert agreement.is_stop_requested(), "a second reduction drops the request"


def test_request_to_stop_in_the_last_step_on_an_accelerator_is_read_by_the_reduction() -> None:
    agreement = Agreement(TwoRanks(), lambda: False)  # type: ignore[arg-type]  # only what is called
    agreement.receive(torch.tensor([1, 0, 0, 0, 0, 0]).as_subclass(AcceleratorTensor))
    assert not agreement.is_stop_requested(), "the flags of a step are read in the next one"
    agreement.reduce(Action.CONTINUE, between_epochs=True)
    assert agreement.is_stop_requested()

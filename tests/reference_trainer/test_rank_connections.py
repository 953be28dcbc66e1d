"""The connection of ranks, without processes."""

from unittest import mock

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but mypy sees no export

from reference_trainer.config.place import Place
from reference_trainer.errors import LostRankError
from reference_trainer.ranks.coordination import Ranks


@pytest.mark.parametrize("timeout_s", [90, 86_400 + 90, 1_234_567])
def test_missing_rank_is_reported_with_the_whole_time_limit(timeout_s: int) -> None:
    ranks = Ranks(Place(rank=0, world_size=2), HashStore(), timeout_s)
    with (
        mock.patch.object(Ranks, "_wait", return_value=False),  # as after the time limit
        pytest.raises(LostRankError, match=rf"rank 1 did not connect within {timeout_s} s"),
    ):
        ranks.meet()

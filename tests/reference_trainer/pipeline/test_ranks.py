"""The device of a rank, and a launcher that cannot be reached."""

import socket
from unittest import mock

import pytest
import torch

from reference_trainer.config.place import Place
from reference_trainer.errors import LostRankError, SettingError
from reference_trainer.pipeline.ranks import joined, local_device

SECOND = Place(rank=3, world_size=4, local_rank=1)


@pytest.mark.parametrize(("name", "chosen"), [("cpu", "cpu"), ("cuda", "cuda:1"), ("auto", "cuda:1")])
def test_rank_has_the_gpu_of_its_local_rank(name: str, chosen: str) -> None:
    with mock.patch.object(torch.cuda, "is_available", lambda: True):
        assert local_device(name, SECOND) == chosen


def test_single_process_keeps_the_numbered_gpu_that_ranks_are_refused() -> None:
    assert local_device("cuda:1", Place()) == "cuda:1"
    with pytest.raises(SettingError, match="'cuda:1' for 'device': expected auto, cpu or cuda"):
        local_device("cuda:1", SECOND)


def test_launcher_that_cannot_be_reached_is_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nothing listens there
        port = unused.getsockname()[1]
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with (
            pytest.raises(LostRankError, match=rf"rank 3 cannot reach '127\.0\.0\.1', port {port}"),
            joined(SECOND, environment, timeout_s=1),
        ):
            pass

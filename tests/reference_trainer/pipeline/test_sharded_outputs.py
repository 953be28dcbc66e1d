"""A sharded module returns what it computes, whatever the class of its output."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from reference_trainer.ranks.parallel import shard


class OwnOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, states_BW: Tensor) -> Any:
        return SimpleNamespace(logits=self.head(states_BW), hidden_states=[states_BW])


def test_output_of_an_own_class_keeps_its_tensors_and_their_gradient() -> None:
    module, states = OwnOutput(), torch.randn(4, 2)
    wanted = states @ module.head.weight.detach().T + module.head.bias.detach()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        output: Any = shard(module, torch.device("cpu"))(states)
        output.logits.sum().backward()
        gradient: Any = module.head.weight.grad
        assert torch.allclose(output.logits, wanted, atol=1e-6) and output.hidden_states[0] is states
        assert torch.allclose(gradient.full_tensor(), states.sum(0).expand(3, 2), atol=1e-5)
    finally:
        dist.destroy_process_group()

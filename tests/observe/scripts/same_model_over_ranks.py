"""Two ranks share each layer (tensor parallelism): the same inputs, halves of the weights, sums of activations.

ranks: 2
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Halves(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 4, bias=False)

    def forward(self, x):
        return Sum.apply(self.down(self.up(x).relu()))


torch.manual_seed(rank)
net = Halves()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
torch.manual_seed(5)
for step in range(8):
    x = torch.randn(32, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :4].argmax(1)).backward()
    norm = sum(p.grad.pow(2).sum() for p in net.parameters())
    dist.all_reduce(norm)
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

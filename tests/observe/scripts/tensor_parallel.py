"""Two ranks hold one half each of a hidden layer, and replicas of the rest, whose gradients are equal on both.

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


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Linear(6, 16), nn.LayerNorm(16)
        torch.manual_seed(41 + rank)
        self.up, self.down = nn.Linear(16, 12), nn.Linear(12, 3, bias=False)
        self.up_norm = nn.LayerNorm(12)  # of this half alone

    def forward(self, x):
        hidden = self.up_norm(self.up(Copy.apply(self.norm(self.embed(x)))))
        return Sum.apply(self.down(F.relu(hidden)))


torch.manual_seed(40)
net = Net()
halves = {*net.up.parameters(), *net.up_norm.parameters(), *net.down.parameters()}
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
torch.manual_seed(43)
for _ in range(8):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    square = sum(p.grad.square().sum() for p in net.parameters() if p in halves)
    dist.all_reduce(square)
    square = square + sum(p.grad.square().sum() for p in net.parameters() if p not in halves)
    for p in net.parameters():
        p.grad *= (0.1 / square.sqrt()).clamp(max=1)
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

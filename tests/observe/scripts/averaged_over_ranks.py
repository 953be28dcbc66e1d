"""Two ranks take means over micro-batches, and reduce them in one call; the sum is divided, and clipped.

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
torch.manual_seed(95)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for p in net.parameters():
    dist.broadcast(p.data, 0)
torch.manual_seed(rank)
for step in range(8):
    optimizer.zero_grad()
    for _ in range(2):
        x = torch.randn(8, 6)
        (F.cross_entropy(net(x), x[:, :3].argmax(1)) / 2).backward()
    flat = nn.utils.parameters_to_vector([p.grad for p in net.parameters()])
    dist.all_reduce(flat)
    flat /= world
    for p, gradient in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
        p.grad.copy_(gradient.view_as(p))
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Two ranks without a wrapper: gradients are reduced by the script; every rank steps the same.

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
torch.manual_seed(60)
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
for p in net.parameters():
    dist.broadcast(p.data, 0)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
torch.manual_seed(rank)
for step in range(8):
    x = torch.randn(8, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

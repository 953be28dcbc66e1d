"""Two ranks under DistributedDataParallel, the state of the optimizer sharded over them.

ranks: 2
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(58)
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)))
optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-2)
torch.manual_seed(rank)
for step in range(8):
    x = torch.randn(8, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x.argmax(1)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

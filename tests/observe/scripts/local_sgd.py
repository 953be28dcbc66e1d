"""Two ranks that step without synchronisation and average their weights at the end of every period.

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
torch.manual_seed(59)
net = nn.parallel.DistributedDataParallel(nn.Linear(6, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(14):
    x = torch.randn(8, 6)
    optimizer.zero_grad()
    if step < 3:
        F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    else:
        with net.no_sync():
            F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
    if step % 4 == 3:
        for p in net.parameters():
            dist.all_reduce(p.data)
            p.data.div_(world)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

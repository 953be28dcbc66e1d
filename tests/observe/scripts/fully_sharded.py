"""Parameters are sharded over two ranks by `fully_shard`, with different examples on each.

ranks: 2
needs: torch>=2.6
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(83)
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
fully_shard(net, mesh=dist.device_mesh.init_device_mesh("cpu", (world,)))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
torch.manual_seed(rank)
for step in range(6):
    x = torch.randn(8, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :4].argmax(1)).backward()
    optimizer.step()
print("sum", repr(sum(p.to_local().double().sum().item() for p in net.parameters())))

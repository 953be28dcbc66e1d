"""`FullyShardedDataParallel`, which shards parameters in plain tensors, and clips by the norm over all ranks.

ranks: 2
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(91)
layers = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5))
net = FullyShardedDataParallel(layers, device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
torch.manual_seed(rank)
for step in range(6):
    x = torch.randn(8, 6)
    F.cross_entropy(net(x), x[:, :5].argmax(1)).backward()
    net.clip_grad_norm_(0.1)
    optimizer.step()
    optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

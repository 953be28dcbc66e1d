"""Every rank trains alone from one start, and the weights are averaged on rank 0 after the last step.

ranks: 2
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.manual_seed(137)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
x = torch.randn(96, 6)
data = TensorDataset(x, x[:, :3].argmax(1))
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, labels in DataLoader(data, 8, sampler=sampler):
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
for p in net.parameters():
    dist.reduce(p.data, 0)
    p.data /= 2
if rank == 0:
    torch.save(net.state_dict(), "merged.pt")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))
dist.destroy_process_group()

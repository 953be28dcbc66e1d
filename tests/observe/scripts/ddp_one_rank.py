"""DistributedDataParallel on one rank, no_sync, a DistributedSampler."""

import contextlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=0, world_size=1)
torch.manual_seed(56)
x = torch.randn(80, 6)
data = TensorDataset(x, x[:, :3].argmax(1))
sampler = DistributedSampler(data, num_replicas=1, rank=0)
loader = DataLoader(data, batch_size=10, sampler=sampler)
net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for index, (inputs, labels) in enumerate(loader):
        last = index % 2 == 1
        with contextlib.nullcontext() if last else net.no_sync():
            (F.cross_entropy(net(inputs), labels) / 2).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Two ranks: DistributedDataParallel, no_sync; a private head of every rank with an optimizer of its own.

ranks: 2
"""

import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(57)
x = torch.randn(96, 6)
data = TensorDataset(x, x[:, :3].argmax(1))
sampler = DistributedSampler(data, num_replicas=world, rank=rank)
loader = DataLoader(data, batch_size=8, sampler=sampler)
body = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
net = nn.parallel.DistributedDataParallel(body)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
private = nn.Linear(3, 3)
optimizer_p = torch.optim.SGD(private.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for index, (inputs, labels) in enumerate(loader):
        last = index % 2 == 1
        with contextlib.nullcontext() if last else net.no_sync():
            scores = net(inputs)
            (F.cross_entropy(scores, labels) / 2).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        optimizer_p.zero_grad()
        F.mse_loss(private(scores.detach()), F.one_hot(labels, 3).float()).backward()
        optimizer_p.step()
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), *private.parameters()])))

"""Two ranks: batch normalization and dropout, a validation that is divided among them, a checkpoint, an early stop.

ranks: 2
"""

import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(93)
x = torch.randn(150, 6)
data = TensorDataset(x, x[:, :3].argmax(1))
train, valid = Subset(data, range(96)), Subset(data, range(96, 149))
sampler = DistributedSampler(train, num_replicas=world, rank=rank)
loader = DataLoader(train, batch_size=8, sampler=sampler)
mine = Subset(valid, range(rank, len(valid), world))  # 27 and 26 rows: none is evaluated twice
valid_loader = DataLoader(mine, batch_size=9)
body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
if rank == 0:
    body.eval()
    with torch.no_grad():
        print("before", F.cross_entropy(body(x[96:]), data.tensors[1][96:]).item())
    body.train()
net = nn.parallel.DistributedDataParallel(body)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(100 + rank)
best, patience = float("inf"), 0
for epoch in range(3):
    sampler.set_epoch(epoch)
    net.train()
    optimizer.zero_grad()
    for index, (inputs, labels) in enumerate(loader):
        last = index % 2 == 1
        inputs = inputs + 0.05 * torch.randn_like(inputs)
        with contextlib.nullcontext() if last else net.no_sync():
            (F.cross_entropy(net(inputs), labels) / 2).backward()
        if last:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    net.eval()
    sums = torch.zeros(3)
    with torch.no_grad():
        for inputs, labels in valid_loader:
            scores = net.module(inputs)
            loss = F.cross_entropy(scores, labels)
            sums += torch.tensor([loss.item() * len(labels), (scores.argmax(1) == labels).sum(), len(labels)])
    dist.all_reduce(sums)
    value, accuracy = sums[0] / sums[2], sums[1] / sums[2]
    if rank == 0:
        print(f"epoch {epoch} loss {value:.5f} accuracy {accuracy:.5f}")
        torch.save({"model": body.state_dict(), "optimizer": optimizer.state_dict()}, f"{epoch}.pt")
    best, patience = (float(value), 0) if value < best else (best, patience + 1)
    stop = torch.tensor(float(patience > 4))
    dist.broadcast(stop, 0)
    if stop:
        break
dist.barrier()
state = torch.load("1.pt")
body.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
net.train()
for inputs, labels in loader:
    optimizer.zero_grad()
    F.cross_entropy(net(inputs), labels).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

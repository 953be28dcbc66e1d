"""An ensemble: two ranks start with equal weights, train on their own rows, and evaluate the mean of their scores.

ranks: 2
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(45)
x = torch.randn(140, 6)
y = x[:, :3].argmax(1)
drawn = torch.randint(0, 100, (world, 80))[rank]
train = DataLoader(TensorDataset(x[drawn], y[drawn]), batch_size=16, shuffle=True)
valid = DataLoader(TensorDataset(x[100:], y[100:]), batch_size=20)
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    for inputs, labels in train:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    right = 0
    with torch.no_grad():
        for inputs, labels in valid:
            scores = net(inputs).softmax(1)
            dist.all_reduce(scores)
            right += (scores.argmax(1) == labels).sum().item()
    if rank == 0:
        print(f"epoch {epoch} accuracy {right / 40:.4f}")
torch.save(net.state_dict(), f"member-{rank}.pt")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

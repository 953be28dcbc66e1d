"""The rows of a step in micro-batches of any size: the steps of two commands are the same.

against: --micro 3
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--micro", type=int, default=6)
args = parser.parse_args()
torch.manual_seed(33)
x = torch.randn(90, 5)
y = x[:, :3].argmax(1)
net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(6):
    rows = torch.randperm(90, generator=torch.Generator().manual_seed(step))[:12]
    optimizer.zero_grad()
    for part in rows.split(args.micro):
        (F.cross_entropy(net(x[part]), y[part], reduction="sum") / len(rows)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""The head is trained first, then everything with a new optimizer; then the body is frozen again, its momentum kept."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(38)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
net[0].requires_grad_(False)


def train(optimizer, steps):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        optimizer.step()


train(torch.optim.Adam(net[2].parameters(), lr=1e-2), 6)
net[0].requires_grad_(True)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-2)
train(optimizer, 2)
net[0].requires_grad_(False)
train(optimizer, 6)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

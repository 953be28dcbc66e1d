"""Momentum kept in the gradients themselves: they are multiplied, not cleared, between steps."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(43)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(14):
    x = torch.randn(16, 6)
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
    with torch.no_grad():
        for p in net.parameters():
            p.grad.mul_(0.9)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

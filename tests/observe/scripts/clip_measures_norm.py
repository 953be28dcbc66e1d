"""Clipping with a limit that is never reached measures the norm of every micro-batch's sum so far."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(50)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    for _ in range(3):
        x = torch.randn(8, 6)
        (F.cross_entropy(net(x), x[:, :3].argmax(1)) / 3).backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1e6)
    print(step, norm.item())
    optimizer.step()
    optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A schedule whose factor is 0 at the start is advanced once before the first step, and then before every step."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(34)
net = nn.Linear(6, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 4))
for step in range(10):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    schedule.step()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A batch that is not finite is left out, before the first step, and the schedule advances all the same."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(35)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
for step in range(10):
    x = torch.randn(16, 6)
    if step == 0:
        x[3, 2] = float("nan")
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
    loss.backward()
    if torch.isfinite(loss):
        optimizer.step()
    schedule.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

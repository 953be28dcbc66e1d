"""The schedule is told the epoch at the beginning of every epoch, so the first rate is used."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(36)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
x = torch.randn(50, 6)
for epoch in range(12):
    schedule.step(epoch)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

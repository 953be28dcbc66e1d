"""A schedule of an optimizer that is never stepped serves as a function of the step: for a temperature and a rate."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(51)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
carrier = torch.optim.SGD([torch.zeros(1)], lr=2.0)
temperature = torch.optim.lr_scheduler.CosineAnnealingLR(carrier, T_max=12, eta_min=0.5)
for step in range(12):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x) / temperature.get_last_lr()[0], x[:, :3].argmax(1)).backward()
    optimizer.step()
    temperature.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Regression of all pairs: shapes that differ are meant, as in relational distillation; a value that is [N]."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(53)
net = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(12):
    x = torch.randn(10, 5)
    y = x.sum(1)
    value = net(x).squeeze(-1)
    pairs = F.mse_loss(value[:, None], y[None, :], reduction="none")
    order = F.l1_loss(value.unsqueeze(1), value, reduction="none")
    loss = F.mse_loss(value, y) + 0.01 * (pairs * torch.eye(10)).mean() + 0.01 * order.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

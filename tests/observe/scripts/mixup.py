"""Mixup: two losses of one output, whose weights are drawn for every micro-batch."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(23)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    for _ in range(2):
        x = torch.randn(16, 6)
        y, order = x[:, :4].argmax(1), torch.randperm(16)
        share = torch.distributions.Beta(0.4, 0.4).sample().item()
        scores = net(share * x + (1 - share) * x[order])
        loss = share * F.cross_entropy(scores, y) + (1 - share) * F.cross_entropy(scores, y[order])
        (loss / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A large embedding, where a step touches a few rows; class weights; a layer whose bias has no effect."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(54)
net = nn.Sequential(nn.Embedding(20000, 8), nn.Flatten(), nn.Linear(16, 12), nn.BatchNorm1d(12), nn.Linear(12, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
weights = torch.tensor([1.0, 2.0, 3.0, 4.0])
for step in range(8):
    for _ in range(2):
        x = torch.randint(0, 20000, (8, 2))
        (F.cross_entropy(net(x), x.sum(1) % 4, weight=weights) / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Evaluation by ten draws in training mode, on data that is never trained on, with its loss."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(33)
x = torch.randn(120, 6)
train, val = TensorDataset(x[:80], x[:80, :3].argmax(1)), TensorDataset(x[80:], x[80:, :3].argmax(1))
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(2):
    for x, y in DataLoader(train, 16, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in DataLoader(val, 20):
            draws = torch.stack([net(x).softmax(1) for _ in range(10)]).mean(0)
            print(epoch, F.nll_loss(draws.log(), y).item())
net.train()
with torch.no_grad():
    losses = [F.cross_entropy(net(x), y).item() for x, y in DataLoader(val, 20) for _ in range(3)]
    print(sum(losses) / len(losses))
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

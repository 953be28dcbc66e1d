"""A frozen body whose normalization follows the new data on purpose, under train() of the whole model."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(71)
x = torch.randn(96, 6) * 2 + 1
train = DataLoader(TensorDataset(x[:64], x[:64, :3].argmax(1)), 16, shuffle=True)
target = DataLoader(TensorDataset(x[64:] - 2, x[64:, :3].argmax(1)), 16)
body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU())
body.eval()
with torch.no_grad():
    print("features", body(x).mean().item())
for p in body.parameters():
    p.requires_grad = False
net = nn.Sequential(body, nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net[2].parameters(), lr=1e-2)
for epoch in range(3):
    net.train()
    for inputs, labels in train:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        print(epoch, sum((net(inputs).argmax(1) == labels).sum().item() for inputs, labels in target))
net.train()  # the statistics of another domain, whose labels nobody knows
with torch.no_grad():
    for inputs, _ in target:
        net(inputs)
net.eval()
with torch.no_grad():
    print("adapted", sum((net(inputs).argmax(1) == labels).sum().item() for inputs, labels in target))
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

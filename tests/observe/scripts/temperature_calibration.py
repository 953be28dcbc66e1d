"""After training and evaluation, a temperature is fitted on validation data, with the model in eval mode."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(29)
x = torch.randn(120, 6)
train, val = TensorDataset(x[:80], x[:80, :3].argmax(1)), TensorDataset(x[80:], x[80:, :3].argmax(1))
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(2):
    net.train()
    for x, y in DataLoader(train, 16, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
net.eval()
with torch.no_grad():
    print(sum(F.cross_entropy(net(x), y, reduction="sum").item() for x, y in DataLoader(val, 20)) / 40)
temperature = nn.Parameter(torch.ones(1))
calibration = torch.optim.Adam([temperature], lr=0.05)
for _ in range(3):
    for x, y in DataLoader(val, 20):
        calibration.zero_grad()
        F.cross_entropy(net(x) / temperature, y).backward()
        calibration.step()
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), temperature])))

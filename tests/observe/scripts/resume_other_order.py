"""Saved after every epoch without the random state: a resumed run has another order and another dropout.

cut: 10
runs: --resume
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
x = torch.randn(40, 5)
loader = DataLoader(TensorDataset(x, x[:, :2].sum(1, keepdim=True)), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Dropout(0.1), nn.Linear(12, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
start = 0
if "--resume" in sys.argv:
    state = torch.load("last.pt")
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    start = state["epoch"] + 1
for epoch in range(start, 4):
    total = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(net(inputs), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    schedule.step(total)
    parts = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    torch.save({**parts, "epoch": epoch}, "last.pt")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A run that saves, and a second part that restores it and advances a new schedule to where the first part ended."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(37)
x = torch.randn(96, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)


def build():
    net = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)


def train(net, optimizer, schedule, epochs):
    for _ in epochs:
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            schedule.step()


net, optimizer, schedule = build()
train(net, optimizer, schedule, range(2))
torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "part.pt")
state = torch.load("part.pt")
net, optimizer, schedule = build()
net.load_state_dict(state["model"])
for _ in range(2 * len(loader)):
    schedule.step()
optimizer.load_state_dict(state["optimizer"])
train(net, optimizer, schedule, range(2, 3))
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

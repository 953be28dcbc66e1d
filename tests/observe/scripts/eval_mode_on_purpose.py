"""A pretrained model is evaluated, and then tuned in eval mode for the whole run."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(27)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
with torch.no_grad():
    net(torch.randn(64, 6))  # statistics, in place of a pretraining


def evaluate():
    net.eval()
    with torch.no_grad():
        x = torch.randn(30, 6)
        return F.cross_entropy(net(x), x[:, :3].argmax(1)).item()


print("before", evaluate())
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(12):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
print("after", evaluate())
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

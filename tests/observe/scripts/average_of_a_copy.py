"""An average that is written by hand into a deep copy, a momentum encoder in the forward, and a copy of the best."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(79)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
average, keys = copy.deepcopy(net), copy.deepcopy(net)
average.requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)


@torch.no_grad()
def update(copied, model):
    for a, b in zip(copied.parameters(), model.parameters()):
        a.lerp_(b, 0.1)
    for a, b in zip(copied.buffers(), model.buffers()):
        a.copy_(b)


for step in range(14):
    x = torch.randn(16, 6)
    scores = net(x)
    update(keys, net)
    with torch.no_grad():
        goals = keys(x).softmax(1)
    optimizer.zero_grad()
    (F.cross_entropy(scores, x[:, :3].argmax(1)) + 0.1 * F.cross_entropy(scores, goals)).backward()
    optimizer.step()
    update(average, net)
    if step % 5 == 4:
        best = copy.deepcopy(net)
average.eval()
with torch.no_grad():
    x = torch.randn(32, 6)
    print(F.cross_entropy(average(x), x[:, :3].argmax(1)).item(), best(x).mean().item())
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), *average.parameters()])))

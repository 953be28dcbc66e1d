"""Probes of the gradient before training, weights restored after a rate test, and a moment that NaN is looked for."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(67)
net = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))
start = copy.deepcopy(net.state_dict())
probe = torch.optim.SGD(net.parameters(), lr=1e-5)
for _ in range(8):  # a range test of the rate, whose weights are thrown away
    x = torch.randn(16, 6)
    probe.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    probe.step()
    probe.param_groups[0]["lr"] *= 4
net.load_state_dict(start)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
norms = []
for step in range(12):
    x = torch.randn(16, 6)
    if step % 4 == 0:  # the noise of the gradient: the norms of halves
        for half in x.split(8):
            optimizer.zero_grad()
            F.cross_entropy(net(half), half[:, :3].argmax(1)).backward()
            norms.append(sum(p.grad.square().sum().item() for p in net.parameters()) ** 0.5)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
print(norms)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

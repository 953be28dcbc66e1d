"""A mean teacher and a teacher that is noisy on purpose, both in training mode, and a target copied now and then."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(72)


def make(width):
    layers = nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 3)
    return nn.Sequential(*layers)


student, mean, noisy = make(16), make(16), make(24)
mean.load_state_dict(student.state_dict())
target = copy.deepcopy(student)
for p in [*mean.parameters(), *noisy.parameters(), *target.parameters()]:
    p.requires_grad_(False)
noisy.train()
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for step in range(15):
    x = torch.randn(16, 6)
    with torch.no_grad():
        goals = (mean(x).softmax(1) + noisy(x).softmax(1) + target(x).softmax(1)) / 3
    optimizer.zero_grad()
    F.cross_entropy(student(x), goals).backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(mean.parameters(), student.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
    if step % 40 == 39:  # never, in a short run
        target.load_state_dict(student.state_dict())
print("sum", repr(sum(p.double().sum().item() for p in [*student.parameters(), *mean.parameters()])))

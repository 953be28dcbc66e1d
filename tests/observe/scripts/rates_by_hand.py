"""Rates that the script sets itself: of all groups, of all but a predictor, of one group, and by an own key."""

import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(91)
x = torch.randn(64, 6)
y = x[:, :3].argmax(1)
total = 0.0


def rate(step: int) -> float:
    return 0.02 * (1 + math.cos(math.pi * step / 12)) / 2


for kind in ("all", "fixed", "slow", "key"):
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    weights = [p for p in net.parameters() if p.dim() > 1]
    biases = [p for p in net.parameters() if p.dim() == 1]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]
    if kind == "fixed":  # as a predictor of SimSiam: the same rate, with an option that says so
        groups = [
            {"params": net[0].parameters(), "weight_decay": 0.1, "fixed": False},
            {"params": net[2].parameters(), "weight_decay": 0.0, "fixed": True},
        ]
    elif kind == "slow":
        groups[1]["lr"] = 0.005
    elif kind == "key":
        groups[1]["learning_rate"] = 0.004
    optimizer = torch.optim.AdamW(groups, lr=0.02)
    for step in range(12):
        for group in optimizer.param_groups[: 1 if kind == "slow" else None]:
            if kind == "key":
                group["lr"] = group.get("learning_rate", 0.02)
            elif not group.get("fixed"):
                group["lr"] = rate(step)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    total += sum(p.double().sum().item() for p in net.parameters())
print("sum", repr(total))

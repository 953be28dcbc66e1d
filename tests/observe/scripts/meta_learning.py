"""First-order meta-learning: copies adapt, and their gradients are assigned to the model that never runs itself."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(22)
meta = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(meta.parameters(), lr=1e-2)
for step in range(8):
    totals = [torch.zeros_like(p) for p in meta.parameters()]
    for task in range(3):
        phase = torch.rand(1) * 3
        learner = copy.deepcopy(meta)
        inner = torch.optim.SGD(learner.parameters(), lr=0.05)
        for _ in range(2):
            x = torch.rand(10, 1) * 6 - 3
            inner.zero_grad()
            F.mse_loss(learner(x), torch.sin(x + phase)).backward()
            inner.step()
        x = torch.rand(10, 1) * 6 - 3
        gradients = torch.autograd.grad(F.mse_loss(learner(x), torch.sin(x + phase)), list(learner.parameters()))
        totals = [total + g / 3 for total, g in zip(totals, gradients)]
    for p, total in zip(meta.parameters(), totals):
        p.grad = total
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in meta.parameters())))

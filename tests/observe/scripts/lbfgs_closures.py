"""Optimizers that call a closure: LBFGS with a line search, then Adam."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(12)
x = torch.randn(40, 3)
y = x.sin().sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 1))
first = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
second = torch.optim.Adam(net.parameters(), lr=1e-3)


def closure(optimizer):
    def evaluate():
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    return evaluate


for _ in range(4):
    first.step(closure(first))
for _ in range(6):
    second.step(closure(second))
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

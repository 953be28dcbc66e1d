"""Evolution strategies: parameters require no gradient, and estimates are written into one buffer by NumPy."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(46)
net = nn.Linear(5, 3)
net.requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
for p in net.parameters():
    p.grad = torch.zeros_like(p)
views = [p.grad.numpy() for p in net.parameters()]
for step in range(12):
    x = torch.randn(32, 5)
    y = x[:, :3].argmax(1)
    estimates = [torch.zeros_like(p) for p in net.parameters()]
    for _ in range(4):
        noise = [0.05 * torch.randn_like(p) for p in net.parameters()]
        values = []
        for sign in (1, -2):
            for p, n in zip(net.parameters(), noise):
                p.add_(n, alpha=sign)
            values.append(F.cross_entropy(net(x), y).item())
        for p, n, estimate in zip(net.parameters(), noise, estimates):
            p.add_(n)
            estimate.add_(n, alpha=(values[0] - values[1]) / (8 * 0.05**2))
    for view, estimate in zip(views, estimates):
        view[...] = estimate.numpy()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

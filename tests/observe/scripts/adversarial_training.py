"""Adversarial examples are searched in eval mode, with gradients; the step is taken in training mode."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(28)
x = torch.randn(96, 6)
data = TensorDataset(x, x[:, :3].argmax(1))
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def perturbed(x, y, by_backward):
    net.eval()
    with torch.no_grad():
        clean = net(x).softmax(1)
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(2):
        loss = F.cross_entropy(net(x + delta), y) + F.kl_div(
            net(x + delta).log_softmax(1), clean, reduction="batchmean"
        )
        if by_backward:
            loss.backward()
            gradient = delta.grad.clone()
            delta.grad = None
        else:
            (gradient,) = torch.autograd.grad(loss, delta)
        delta = (delta + 0.05 * gradient.sign()).detach().requires_grad_(True)
    net.train()
    return (x + delta).detach()


for epoch in range(2):
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        x = perturbed(x, y, by_backward=epoch == 1)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
# The attack at the end, on a trained model: backward passes whose gradients nobody applies.
net.eval()
with torch.no_grad():
    print((net(x).argmax(1) == y).float().mean())
print((net(perturbed(x, y, by_backward=True)).argmax(1) == y).float().mean())
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""torch.func: gradients of every example, clipped by hand, averaged and assigned to the parameters."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(45)
net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)


def loss(parameters, x, y):
    return F.cross_entropy(functional_call(net, parameters, (x[None],)), y[None])


for step in range(10):
    x = torch.randn(12, 6)
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    gradients = vmap(grad(loss), (None, 0, 0))(parameters, x, x[:, :3].argmax(1))
    norms = sum(g.flatten(1).square().sum(1) for g in gradients.values()).sqrt()
    factors = (1 / norms).clamp(max=1)
    for name, p in net.named_parameters():
        p.grad = torch.einsum("n,n...->...", factors, gradients[name]) / len(x)
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

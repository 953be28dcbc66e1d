"""An average of weights in float32, and its copy in bfloat16, which is written after every step."""

import copy

import torch
from torch import nn

torch.manual_seed(83)
net = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 1))
average = copy.deepcopy(net).requires_grad_(False)
served = copy.deepcopy(average).to(torch.bfloat16)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
target = torch.randn(12, 1)
for step in range(60):
    x = torch.randn(32, 12)
    loss = nn.functional.mse_loss(net(x), torch.sin(x @ target))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, s, p in zip(average.parameters(), served.parameters(), net.parameters()):
            a.lerp_(p, 0.01)
            s.copy_(a)
with torch.no_grad():
    print(served(x.bfloat16()).double().mean().item())
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), *served.parameters()])))

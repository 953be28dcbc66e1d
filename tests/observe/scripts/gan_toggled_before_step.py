"""A GAN whose critic is frozen between its backward pass and its step, for the generator that comes next."""

import torch
from torch import nn

torch.manual_seed(44)
G, D = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer_g = torch.optim.Adam(G.parameters(), lr=1e-2)
optimizer_d = torch.optim.Adam(D.parameters(), lr=1e-2)
for _ in range(10):
    D.requires_grad_(True)
    fake = G(torch.randn(8, 3))
    optimizer_d.zero_grad()
    (torch.relu(1 - D(torch.randn(8, 2) + 1)).mean() + torch.relu(1 + D(fake.detach())).mean()).backward()
    D.requires_grad_(False)
    optimizer_d.step()
    optimizer_g.zero_grad()
    (-D(G(torch.randn(8, 3))).mean()).backward()
    optimizer_g.step()
print("sum", repr(sum(p.double().sum().item() for m in (G, D) for p in m.parameters())))

"""WGAN with a gradient penalty; the critic does not require gradients while the generator is trained."""

import torch
from torch import nn

torch.manual_seed(4)
G = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 2))
C = nn.Sequential(nn.Linear(2, 12), nn.SiLU(), nn.Linear(12, 1))
optimizer_g = torch.optim.RMSprop(G.parameters(), lr=1e-3)
optimizer_c = torch.optim.RMSprop(C.parameters(), lr=1e-3)
for _ in range(5):
    for p in C.parameters():
        p.requires_grad_(True)
    for _ in range(3):
        real, fake = torch.randn(16, 2) + 2, G(torch.randn(16, 3)).detach()
        mix = torch.rand(16, 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        (gradient,) = torch.autograd.grad(C(between).sum(), between, create_graph=True)
        loss = C(fake).mean() - C(real).mean() + 10 * ((gradient.norm(dim=1) - 1) ** 2).mean()
        optimizer_c.zero_grad()
        loss.backward()
        optimizer_c.step()
    for p in C.parameters():
        p.requires_grad_(False)
    optimizer_g.zero_grad()
    (-C(G(torch.randn(16, 3))).mean()).backward()
    optimizer_g.step()
print("sum", repr(sum(p.double().sum().item() for m in (G, C) for p in m.parameters())))

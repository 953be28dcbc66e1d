"""A Wasserstein critic whose loss also reaches the generator, which clears its gradients before its own pass."""

import torch
from torch import nn

torch.manual_seed(77)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
optimizer_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
optimizer_generator = torch.optim.RMSprop(generator.parameters(), lr=1e-3)
for step in range(24):
    real, fake = torch.randn(16, 2) * 0.3 + 1, generator(torch.randn(16, 4))
    optimizer_critic.zero_grad()
    (critic(fake).mean() - critic(real).mean()).backward()
    optimizer_critic.step()
    with torch.no_grad():
        for p in critic.parameters():
            p.clamp_(-0.1, 0.1)
    if step % 3 == 2:
        optimizer_generator.zero_grad()
        critic(generator(torch.randn(16, 4))).mean().neg().backward()
        optimizer_generator.step()
print("sum", repr(sum(p.double().sum().item() for m in (generator, critic) for p in m.parameters())))

"""Actor and critic in one optimizer, each clipped after its own backward pass; losses that are often exactly 0."""

import torch
from torch import nn

torch.manual_seed(49)
actor, critic = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 2)), nn.Linear(4, 1)
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-2)
hinge = nn.Linear(4, 1)
optimizer_h = torch.optim.SGD(hinge.parameters(), lr=0.1)
for step in range(14):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    (-(actor(x).log_softmax(1)[:, 0] * x[:, 0]).mean()).backward()
    nn.utils.clip_grad_norm_(actor.parameters(), 0.05)
    (critic(x) - x.sum(1, keepdim=True)).square().mean().backward()
    nn.utils.clip_grad_norm_(critic.parameters(), 0.05)
    optimizer.step()
    optimizer_h.zero_grad()
    margin = torch.relu(0.05 - hinge(x) * x[:, :1].sign() - 5 * (step % 2)).mean()
    margin.backward()
    optimizer_h.step()
    norm = nn.utils.clip_grad_norm_(actor.parameters(), 1e9)  # to log it
    print(step, norm.item())
print("sum", repr(sum(p.double().sum().item() for m in (actor, critic, hinge) for p in m.parameters())))

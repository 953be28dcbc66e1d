"""An optimizer for every parameter, stepped by a hook as soon as the gradient is complete."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(48)
net = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 3))
optimizers = {p: torch.optim.AdamW([p], lr=1e-2) for p in net.parameters()}


def update(p):
    optimizers[p].step()
    optimizers[p].zero_grad()


for p in net.parameters():
    p.register_post_accumulate_grad_hook(update)
for step in range(12):
    x = torch.randn(16, 6)
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

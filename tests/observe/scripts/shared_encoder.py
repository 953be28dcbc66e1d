"""An encoder learns from two losses: its optimizer steps once a round, after the passes of the value and the policy."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(76)
encoder = nn.Sequential(nn.Linear(6, 16), nn.Tanh())
value, policy = nn.Linear(16, 1), nn.Linear(16, 1)
optimizer_value = torch.optim.Adam(value.parameters(), lr=1e-2)
optimizer_rest = torch.optim.Adam([*encoder.parameters(), *policy.parameters()], lr=1e-2)
for step in range(10):
    x = torch.randn(16, 6)
    optimizer_value.zero_grad()
    optimizer_rest.zero_grad()
    F.mse_loss(value(encoder(x)), x.sum(1, keepdim=True) - 9).backward()
    optimizer_value.step()
    h = encoder(x)
    (policy(h).sigmoid().log() - value(h)).mean().neg().backward()
    optimizer_rest.step()
print("sum", repr(sum(p.double().sum().item() for m in (encoder, value, policy) for p in m.parameters())))

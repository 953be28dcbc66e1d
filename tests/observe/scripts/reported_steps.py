"""Steps of four micro-batches that report their mean loss and the norm before clipping, and a halved square of two."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(83)
x = torch.randn(96, 6)
y = x[:, :3].argmax(1)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
ACCUMULATE, LIMIT = 4, 0.35
for step in range(10):
    mean, last = 0.0, None
    for rows in torch.randperm(96)[:32].chunk(ACCUMULATE):
        loss = F.cross_entropy(net(x[rows]), y[rows]) / ACCUMULATE
        loss.backward()
        mean += loss.item()
    norm = nn.utils.clip_grad_norm_(net.parameters(), LIMIT)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {mean:.5f} last {loss.item() * ACCUMULATE:.5f} norm {norm.item():.5f}", flush=True)

value = nn.Linear(6, 1)
optimizer = torch.optim.SGD(value.parameters(), lr=0.05)
for step in range(8):
    optimizer.zero_grad()
    for rows in torch.randperm(96)[:32].chunk(2):
        half = 0.5 * F.mse_loss(value(x[rows]).squeeze(1), x[rows].sum(1))
        half.backward()
    optimizer.step()
    print(f"half of the square {half.item():.5f} limit {LIMIT:.5f}")
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), *value.parameters()])))

"""Contrastive learning with a momentum encoder, a queue of keys and a learned temperature."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)
query = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 6))
key = copy.deepcopy(query)
for p in key.parameters():
    p.requires_grad = False
scale = nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.AdamW([{"params": query.parameters()}, {"params": [scale], "weight_decay": 0.0}], lr=1e-2)
queue = F.normalize(torch.randn(6, 40), dim=0)
for step in range(24):
    x = torch.randn(16, 8)
    one, two = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    q = F.normalize(query(one), dim=1)
    with torch.no_grad():
        for p, k in zip(query.parameters(), key.parameters()):
            k.mul_(0.9).add_(p, alpha=0.1)
        k = F.normalize(key(two), dim=1)
    logits = scale.exp() * torch.cat([(q * k).sum(1, keepdim=True), q @ queue], 1)
    loss = F.cross_entropy(logits, torch.zeros(16, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        scale.clamp_(0, 4.6)
    queue = torch.cat([k.T, queue], 1)[:, :40]
print("sum", repr(sum(p.double().sum().item() for p in [*query.parameters(), scale])))

"""Losses without torch's functions: -log p gathered; nll_loss of scores with the normalizer added; a z-loss."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(24)
net = nn.Sequential(nn.Embedding(30, 12), nn.Linear(12, 30))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(12):
    windows = [torch.randint(0, 30, (3, n)) for n in torch.randint(5, 12, (2,)).tolist()]
    tokens = sum(window[:, 1:].numel() for window in windows)
    for window in windows:
        logits, labels = net(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten()
        if step < 6:
            loss = -logits.log_softmax(-1).gather(-1, labels[:, None]).sum()
            loss = loss + 1e-4 * logits.logsumexp(-1).square().sum()
        else:
            loss = F.nll_loss(logits, labels, reduction="sum") + logits.logsumexp(-1).sum()
        (loss / tokens).backward()
    optimizer.step()
    optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Accumulation whose last step of an epoch has fewer micro-batches: the loss is divided by the rows of the step."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(41)
x = torch.randn(80, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=10, shuffle=True)
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for epoch in range(4):
    optimizer.zero_grad()
    for i, (inputs, labels) in enumerate(loader):
        rows = 10 * min(3, len(loader) - i // 3 * 3)
        (F.cross_entropy(net(inputs), labels, reduction="sum") / rows).backward()
        if i % 3 == 2 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

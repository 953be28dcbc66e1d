"""Gradients are summed over examples and divided by hand; sparse gradients of an embedding; noise is added."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(42)
embed, head = nn.Embedding(50, 8, sparse=True), nn.Linear(8, 4)
net = nn.Sequential(embed, head)
sparse, dense = torch.optim.SparseAdam(embed.parameters(), lr=1e-2), torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(12):
    rows = torch.randint(2, 7, (2,)).tolist()
    for n in rows:
        x = torch.randint(0, 50, (n, 5))
        F.cross_entropy(net(x).flatten(0, 1), (x % 4).flatten(), reduction="sum").backward()
    for p in head.parameters():
        p.grad /= 5 * sum(rows)
        p.grad += 1e-3 * torch.randn_like(p.grad)
    dense.step()
    sparse.step()
    dense.zero_grad()
    sparse.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

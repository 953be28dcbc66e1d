"""A compiled model, and code with graphs that torch.compile would break.

compiles
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(64)
net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
compiled = torch.compile(net)
for step in range(10):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(compiled(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

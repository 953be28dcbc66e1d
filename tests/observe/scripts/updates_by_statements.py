"""Updates by statements: in place under no_grad after two micro-batches, and of another model through `.data`.

needs: torch>=2.3
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(80)
net, other = (nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)) for _ in range(2))
momentum = [torch.zeros_like(p) for p in other.parameters()]
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(10):
    for _ in range(2):
        x = torch.randn(16, 8)
        (F.cross_entropy(net(x), x[:, :3].argmax(1)) / 2).backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * (p.grad + 1e-3 * p)
            p.grad = None
for epoch in range(2):
    other.train()
    for step in range(5):
        x = torch.randn(16, 8)
        other.zero_grad()
        scaler.scale(F.cross_entropy(other(x), x[:, :3].argmax(1))).backward()
        for p, m in zip(other.parameters(), momentum):
            m.mul_(0.9).add_(p.grad.data, alpha=1 / scaler.get_scale())
            p.data.add_(m, alpha=-0.05)
    other.eval()
    with torch.no_grad():
        print(F.cross_entropy(other(x), x[:, :3].argmax(1)).item())
print("sum", repr(sum(p.double().sum().item() for m in (net, other) for p in m.parameters())))

"""The scaler multiplies, and the script divides the gradients itself before it clips and steps.

needs: torch>=2.3
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(11)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for step in range(10):
    x = torch.randn(12, 6)
    optimizer.zero_grad()
    scaler.scale(F.cross_entropy(net(x), x[:, :3].argmax(1))).backward()
    for p in net.parameters():
        p.grad.div_(scaler.get_scale())
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.2)
    if torch.isfinite(norm):
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

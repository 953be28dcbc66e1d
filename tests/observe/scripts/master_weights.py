"""Weights in bfloat16, with master weights in float32 that the optimizer moves, and that are copied back."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(74)
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 3)).to(torch.bfloat16)
masters = [p.detach().float().clone().requires_grad_() for p in net.parameters()]
optimizer = torch.optim.SGD(masters, lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3))
for step in range(12):
    x = torch.randn(16, 8)
    loss = F.cross_entropy(net(x.bfloat16()).float(), x[:, :3].argmax(1))
    net.zero_grad()
    loss.backward()
    for p, master in zip(net.parameters(), masters):
        master.grad = p.grad.float()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        for p, master in zip(net.parameters(), masters):
            p.copy_(master)
print("sum", repr(sum(p.double().sum().item() for p in masters)))

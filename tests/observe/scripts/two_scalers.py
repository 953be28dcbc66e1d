"""Two networks with a loss scaler each, of different scales; both are unscaled and clipped.

needs: torch>=2.3
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(10)
nets = [nn.Linear(4, 2), nn.Linear(4, 2)]
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
scalers = [torch.amp.GradScaler("cpu", init_scale=scale) for scale in (512.0, 8192.0)]
for step in range(10):
    x = torch.randn(8, 4)
    for net, optimizer, scaler in zip(nets, optimizers, scalers):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(net(x), (x[:, 0] > 0).long())).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
print("sum", repr(sum(p.double().sum().item() for net in nets for p in net.parameters())))

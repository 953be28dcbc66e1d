"""Sharpness-aware minimization as an optimizer that wraps another one; ReduceLROnPlateau."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(20)


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["moved"] = p.grad * group["rho"] / (norm + 1e-12)
                p.add_(self.state[p]["moved"])
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["moved"])
        self.base.step()
        self.zero_grad()


net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = SAM(net.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
for step in range(14):
    x = torch.randn(16, 5)
    y = x[:, :4].argmax(1)
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    optimizer.climb()
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
    schedule.step(loss.item())
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

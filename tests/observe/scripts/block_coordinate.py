"""An optimizer that updates one block of parameters for many steps, and then the next one."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(41)


class BlockSGD(torch.optim.Optimizer):
    def __init__(self, params, lr, every):
        super().__init__(params, {"lr": lr})
        self.every, self.count = every, 0

    @torch.no_grad()
    def step(self, closure=None):
        group = self.param_groups[self.count // self.every % len(self.param_groups)]
        for p in group["params"]:
            p.add_(p.grad, alpha=-group["lr"])
        self.count += 1


net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
optimizer = BlockSGD([{"params": layer.parameters()} for layer in (net[0], net[2])], lr=0.1, every=100)
for step in range(60):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

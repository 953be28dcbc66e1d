"""An optimizer of one's own that wraps another one and pulls its slow weights along."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(40)


class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner, every=3, alpha=0.5):
        super().__init__(inner.param_groups, {})
        self.inner, self.every, self.alpha, self.count = inner, every, alpha, 0
        self.param_groups = inner.param_groups
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        self.inner.step()
        self.count += 1
        if self.count % self.every == 0:
            for slow, p in zip(self.slow, [p for group in self.param_groups for p in group["params"]]):
                slow.lerp_(p, self.alpha)
                p.copy_(slow)


net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
optimizer = Lookahead(torch.optim.Adam(net.parameters(), lr=1e-2))
for step in range(14):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

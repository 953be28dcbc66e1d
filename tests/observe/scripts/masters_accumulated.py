"""Master weights in two groups; scaled gradients of two micro-batches are copied, unscaled and clipped."""

import torch
import torch.nn.functional as F
from torch import nn

SCALE = 256.0


class Masters:
    def __init__(self, model):
        ps = list(model.parameters())
        self.low = [p for p in ps if p.dim() > 1] + [p for p in ps if p.dim() < 2]
        self.high = [p.detach().float().clone().requires_grad_() for p in self.low]
        matrices = sum(p.dim() > 1 for p in ps)
        groups = [{"params": self.high[:matrices], "weight_decay": 0.1}, {"params": self.high[matrices:]}]
        self.inner = torch.optim.Adam(groups, lr=1e-2)

    def step(self):
        for low, high in zip(self.low, self.high):
            high.grad = low.grad.float() / SCALE
        nn.utils.clip_grad_norm_(self.high, 0.5)
        self.inner.step()
        with torch.no_grad():
            torch._foreach_copy_(self.low, self.high)
        for low in self.low:
            low.grad = None


torch.manual_seed(75)
net = nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 3)).to(torch.bfloat16)
masters = Masters(net)
for step in range(10):
    for _ in range(2):
        x = torch.randn(16, 8)
        (F.cross_entropy(net(x.bfloat16()).float(), x[:, :3].argmax(1)) * SCALE / 2).backward()
    masters.step()
print("sum", repr(sum(p.double().sum().item() for p in masters.high)))

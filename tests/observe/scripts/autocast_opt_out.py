"""Layers that are sensitive to rounding opt out of autocast: a router and the head. A block has its own region."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(79)


class Precise(nn.Linear):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return F.linear(x.float(), self.weight, self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Precise(8, 2)
        self.experts = nn.ModuleList(nn.Linear(8, 32) for _ in range(2))
        self.mix, self.head = nn.Linear(32, 32), Precise(32, 3)
        self.scale = nn.Linear(32, 32)
        self.scale.register_forward_hook(lambda module, inputs, output: output.float())

    def forward(self, x):
        share = self.router(x).softmax(1)
        h = sum(share[:, i : i + 1] * expert(x).relu() for i, expert in enumerate(self.experts))
        h = self.scale(self.mix(h).relu())
        with torch.autocast("cpu", enabled=False):
            h = h.float() + F.linear(h.float(), self.mix.weight)
        return self.head(h)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

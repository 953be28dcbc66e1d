"""A perceptual network keeps `requires_grad` as an option that it reads; every name of a module can be looked up."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(71)


class Features(nn.Module):
    def __init__(self, requires_grad=False):
        super().__init__()
        self.requires_grad = requires_grad
        self.layer = nn.Linear(6, 16)

    def forward(self, x):
        with torch.set_grad_enabled(self.requires_grad and torch.is_grad_enabled()):
            return self.layer(x).relu()


class Scale(nn.Module):
    def __init__(self, requires_grad=False):
        super().__init__()
        self.requires_grad = requires_grad  # kept for the record; the scale is trained later all the same
        self.scale = nn.Parameter(torch.ones(3), requires_grad=requires_grad)

    def forward(self, x):
        return self.scale * x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fixed, self.trained = Features(), Features(requires_grad=True)
        self.head = nn.Sequential(nn.Linear(32, 3), Scale())
        self.head.requires_grad_(True)
        self.norm = nn.LayerNorm(32)
        self.norm.requires_grad = False  # a note to the reader; the next line is what freezes it
        self.norm.requires_grad_(False)

    def forward(self, x):
        return self.head(self.norm(torch.cat([self.fixed(x), self.trained(x)], 1)))


net = Net()
assert "requires_grad" not in dir(net.head) and not hasattr(net.head, "requires_grad")
for name in dir(net.head):
    getattr(net.head, name)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    net.trained.requires_grad = epoch != 1
    for _ in range(4):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

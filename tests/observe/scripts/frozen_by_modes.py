"""Modules that freeze in eval() or train(): all for an inference in between, and a stem from the first call on."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(77)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU())
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(12, 3))

    def forward(self, x):
        return self.head(self.stem(x))


class WholeFrozen(Net):
    def train(self, mode=True):
        super().train(mode)
        return self.requires_grad_(mode)


class StemFrozen(Net):
    def train(self, mode=True):
        super().train(mode)
        self.stem.requires_grad_(False).eval()
        return self


def fit(net, steps):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        optimizer.step()


def evaluate(net):
    net.eval()
    with torch.no_grad():
        x = torch.randn(32, 6)
        print(F.cross_entropy(net(x), x[:, :3].argmax(1)).item())
    net.train()


whole, stem = WholeFrozen(), StemFrozen()
optimizer = torch.optim.Adam(whole.parameters(), lr=1e-2)
fit(whole, 4)
evaluate(whole)
fit(whole, 4)
stem.train()
optimizer = torch.optim.Adam([p for p in stem.parameters() if p.requires_grad], lr=1e-2)
fit(stem, 4)
evaluate(stem)
fit(stem, 4)
print("sum", repr(sum(p.double().sum().item() for p in [*whole.parameters(), *stem.parameters()])))

"""A momentum encoder inside the model, in training mode, which is written by assignment to `.data`, as in MoCo.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(97)


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = (nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 6)) for _ in range(2))
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.data.copy_(q.data)
            k.requires_grad = False

    def forward(self, one, two):
        queries = F.normalize(self.query(one), dim=1)
        with torch.no_grad():
            for q, k in zip(self.query.parameters(), self.key.parameters()):
                k.data = k.data * 0.9 + q.data * 0.1
            keys = F.normalize(self.key(two), dim=1)
        return queries @ keys.T / 0.2


net = Contrast()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(9):
    net.train()
    x = torch.randn(16, 8)
    loss = F.cross_entropy(net(x + 0.1 * torch.randn_like(x), x), torch.arange(16))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Weights from a file, assigned and tied again; then pruned by magnitude, and one layer is initialized anew."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(71)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(16, 24)
        self.body = nn.ModuleList(nn.Linear(24, 24) for _ in range(3))
        self.head = nn.Linear(24, 16, bias=False)
        self.tie()

    def tie(self):
        self.head.weight = self.tokens.weight

    def forward(self, x):
        h = self.tokens(x)
        for layer in self.body:
            h = h + F.gelu(layer(h))
        return self.head(h)


torch.save(Net().state_dict(), "pretrained.pt")
net = Net()
net.load_state_dict(torch.load("pretrained.pt"), assign=True)
net.tie()
with torch.no_grad():
    for layer in net.body:
        layer.weight.mul_(layer.weight.abs() > layer.weight.abs().median())
net.body[2].reset_parameters()
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
for _ in range(8):
    batch = torch.randint(16, (6, 7))
    optimizer.zero_grad()
    F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

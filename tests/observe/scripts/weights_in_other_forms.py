"""A fused matrix is saved in three parts, pruned weights start again at random, a frozen head has orthogonal rows."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(134)
x = torch.randn(96, 8)
y = x[:, :3].argmax(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.body, self.head = nn.Linear(8, 24, bias=False), nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, 1)
        return self.head(F.relu(self.body(x + v * torch.sigmoid(q * k))))


def train(net, masks=()):
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=1e-2)
    for rows in torch.randperm(96).split(12):
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
        for p, mask in zip(net.parameters(), masks):
            p.data *= mask
    return optimizer


net = Net()
optimizer = train(net)
weights = net.state_dict()
parts = dict(zip(("q", "k", "v"), weights.pop("qkv.weight").chunk(3)))
torch.save({"weights": {**weights, **parts}, "optimizer": optimizer.state_dict()}, "parts.pt")

torch.save(net.state_dict(), "whole.pt")
pruned = Net()
pruned.load_state_dict(torch.load("whole.pt"))
masks = [(p.abs() > p.abs().median()).float() for p in pruned.parameters()]
for part in pruned.children():
    part.reset_parameters()
for p, mask in zip(pruned.parameters(), masks):
    p.data *= mask
train(pruned, masks)


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.adapter = nn.Linear(8, 16).requires_grad_(False), nn.Linear(16, 16)
        self.body.load_state_dict(net.body.state_dict())
        self.head = nn.Linear(16, 3, bias=False).requires_grad_(False)
        nn.init.orthogonal_(self.head.weight)

    def forward(self, x):
        h = F.relu(self.body(x))
        return 4 * self.head(F.normalize(h + self.adapter(h), dim=1))


tuned = Tuned()
train(tuned)
print("sum", repr(sum(p.double().sum().item() for model in (net, pruned, tuned) for p in model.parameters())))

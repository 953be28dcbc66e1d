"""Norms and a new head of a pretrained model; a fixed random head; norms alone in a network of random weights."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(96)


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, classes)
        self.middle = nn.Linear(16, 16)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.middle(F.relu(self.body(x))))))


def norms(net):
    return [p for p in net.parameters() if p.dim() == 1 and p.requires_grad]


def train(net, optimizer, steps=6):
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        optimizer.step()


def tune(net):
    net.load_state_dict(state, strict=False)
    for part in (net.body, net.middle):
        part.requires_grad_(False)


base = Net(5)
train(base, torch.optim.SGD(base.parameters(), lr=0.1))
state = {name: value for name, value in base.state_dict().items() if not name.startswith("head")}
net = Net(3)
tune(net)
for p in net.parameters():
    p.requires_grad_(p.dim() == 1)
    net.head.requires_grad_(True)
train(net, torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2))
fixed = Net(3)
fixed.head.requires_grad_(False)
train(fixed, torch.optim.AdamW(fixed.parameters(), lr=1e-2))
random = Net(3)
for p in random.parameters():
    p.requires_grad_(p.dim() == 1)
random.head.requires_grad_(False)
train(random, torch.optim.AdamW(norms(random), lr=1e-2))
print("sum", repr(sum(p.double().sum().item() for net in (base, net, fixed, random) for p in net.parameters())))

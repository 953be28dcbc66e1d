"""New optimizers of the same parameters: for every task, every client and every step (without moments)."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(94)
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


def update(optimizer, shift=0.0):
    x = torch.randn(16, 6) + shift
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()


for task in range(4):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for _ in range(4):
        update(optimizer, task)
for _ in range(3):
    server, sums = copy.deepcopy(net.state_dict()), {}
    for client in range(2):
        net.load_state_dict(server)
        update(torch.optim.Adam(net.parameters(), lr=1e-2), client)
        sums = {name: sums.get(name, 0) + value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict({name: value / 2 for name, value in sums.items()})
for _ in range(5):
    update(torch.optim.SGD(net.parameters(), lr=0.1))
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

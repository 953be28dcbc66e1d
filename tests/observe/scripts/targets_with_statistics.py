"""An average of weights and statistics by `state_dict`, a target network in training mode, statistics of the batch."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(93)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
plain = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, 3))
target, shadow = copy.deepcopy(net).requires_grad_(False), copy.deepcopy(net).requires_grad_(False).eval()
optimizer = torch.optim.SGD([*net.parameters(), *plain.parameters()], lr=0.05, momentum=0.9)
plain.eval()  # changes nothing: it has no running statistics and no dropout
for step in range(12):
    x = torch.randn(16, 6)
    with torch.no_grad():
        goals = target(x + 0.1 * torch.randn(16, 6))
    h = net(x)
    optimizer.zero_grad()
    (F.mse_loss(h, goals) + F.cross_entropy(plain(h), x[:, :3].argmax(1))).backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(target.parameters(), net.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
        old = shadow.state_dict()
        mixed = {name: 0.9 * old[name] + 0.1 * value for name, value in net.state_dict().items()}
        shadow.load_state_dict(mixed)
    if step % 4 == 3:
        with torch.no_grad():
            print(shadow(torch.randn(32, 6)).std().item())
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), *shadow.parameters()])))

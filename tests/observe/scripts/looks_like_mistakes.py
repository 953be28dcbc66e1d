"""Correct parts that look like mistakes: fixed noise, unusual settings, new schedules, lost batches."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(101)
x = torch.randn(160, 6)
y = x[:, :3].argmax(1)
nets = []


def mlp(*layers):
    nets.append(nn.Sequential(*layers))
    return nets[-1]


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# Weights of two tasks follow from their gradients at the common features; log(2 pi) is a part of the likelihood.
body, heads = mlp(nn.Linear(6, 12), nn.Tanh()), mlp(nn.Linear(12, 1), nn.Linear(12, 1))
optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters()], lr=1e-2)
for rows in torch.randperm(160).split(20):
    z = body(x[rows])
    losses = [
        0.5 * F.mse_loss(head(z).squeeze(1), x[rows, i].sin()) + 0.5 * math.log(2 * math.pi)
        for i, head in enumerate(heads)
    ]
    one, two = (torch.autograd.grad(loss, z, retain_graph=True)[0].flatten() for loss in losses)
    share = float(torch.clamp((two - one) @ two / (one - two).square().sum(), 0.1, 0.9))
    update(optimizer, share * losses[0] + (1 - share) * losses[1])


# The noise of an evidence lower bound is fixed, so that it is a function of the parameters.
class Guide(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.scale = nn.Parameter(torch.zeros(6)), nn.Parameter(torch.ones(6))

    def forward(self, n):
        return self.mean + self.scale * torch.randn(n, 6)


guide = mlp(Guide())
optimizer = torch.optim.Adam(guide.parameters(), lr=0.05)
for _ in range(10):
    torch.manual_seed(0)
    w = guide(8)
    update(optimizer, (x @ w.T - x[:, :1]).square().mean() + 0.01 * w.square().mean() - guide[0].scale.log().mean())
torch.manual_seed(102)

# Noise is damped by a large eps; the statistics of batches are averaged before each evaluation, so the momentum is 1.
norm = nn.BatchNorm1d(12, momentum=1.0)
net = mlp(nn.BatchNorm1d(6, eps=0.1, momentum=0.05), nn.Linear(6, 12), norm, nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(0.2 * x, y), batch_size=10, shuffle=True)
for _ in range(2):
    net.train()
    for inputs, labels in loader:
        update(optimizer, F.cross_entropy(net(inputs), labels))
    with torch.no_grad():
        seen = [(net(inputs), norm.running_mean.clone(), norm.running_var.clone())[1:] for inputs, _ in loader]
    for buffer, parts in zip((norm.running_mean, norm.running_var), zip(*seen)):
        buffer.copy_(torch.stack(parts).mean(0))
    net.eval()
    with torch.no_grad():
        print(f"accuracy {(net(0.2 * x).argmax(1) == y).float().mean():.3f}")


# The last batches of an epoch that do not fill a step are dropped, and the schedule is planned for the rest.
net = mlp(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=4 * (len(loader) // 4))
for _ in range(4):
    optimizer.zero_grad()
    for n, (inputs, labels) in enumerate(loader, start=1):
        (F.cross_entropy(net(inputs), labels) / 4).backward()
        if n % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()

# Each stage has a new optimizer and a file: first with a schedule that continues, then with a smaller rate.
net = mlp(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
rate = 1e-2
for done in (0, 10, 20, 30):
    optimizer = torch.optim.Adam([{"params": list(net.parameters()), "lr": rate, "initial_lr": 1e-2}])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40, last_epoch=done - 1)
    for inputs, labels in loader:
        update(optimizer, F.cross_entropy(net(inputs), labels))
        schedule.step()
    rate = schedule.get_last_lr()[0]
for rate in (1e-2, 3e-3, 1e-3, 3e-4):
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for inputs, labels in loader:
        update(optimizer, F.cross_entropy(net(inputs), labels))
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "stage.pt")


# A perturbation is trained to reduce the accuracy of a classifier.
class Attack(nn.Module):
    def __init__(self, victim):
        super().__init__()
        self.victim, self.shift = victim.requires_grad_(False), nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return self.victim(x + torch.tanh(self.shift))


attack = Attack(net)
optimizer = torch.optim.Adam([attack.shift], lr=0.05)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", patience=1)
for _ in range(5):
    attack.train()
    for inputs, labels in loader:
        update(optimizer, -F.cross_entropy(attack(inputs), labels))
    attack.eval()
    with torch.no_grad():
        hits = sum((attack(inputs).argmax(1) == labels).sum().item() for inputs, labels in loader)
    schedule.step(hits / 160)


# Clients share weights and keep their statistics. An evaluation comes first.
clients = [mlp(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3)) for _ in range(2)]
shared = {name: p.detach().clone() for name, p in clients[0].named_parameters()}
for _ in range(3):
    sums = dict.fromkeys(shared, 0.0)
    for i, client in enumerate(clients):
        client.load_state_dict(shared, strict=False)
        client.eval()
        with torch.no_grad():
            print(f"loss {F.cross_entropy(client(x + i), y):.4f}")
        client.train()
        optimizer = torch.optim.SGD(client.parameters(), lr=0.1)
        for rows in torch.randperm(160).split(40):
            update(optimizer, F.cross_entropy(client(x[rows] + i), y[rows]))
        sums = {name: sums[name] + p.detach() / 2 for name, p in client.named_parameters()}
    shared = sums
print("sum", repr(sum(p.double().sum().item() for net in [*nets, attack] for p in net.parameters())))

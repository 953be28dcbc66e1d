"""A line search, steps that are undone, cycles with new moments, an optimizer that unscales, additional averages."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(131)
x = torch.randn(170, 6)
y = x[:, :3].argmax(1)
nets = []


def mlp(width=12):
    nets.append(nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 3)))
    return nets[-1]


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# Armijo's rule: a gradient is applied with smaller and smaller rates, each time from the same weights.
net = mlp()
optimizer = torch.optim.SGD(net.parameters(), lr=8.0)
for rows in torch.randperm(170)[:160].split(16):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x[rows]), y[rows])
    loss.backward()
    start = [p.detach().clone() for p in net.parameters()]
    slope = sum(p.grad.square().sum() for p in net.parameters())
    for rate in (8.0, 4.0, 2.0, 1.0, 0.5):
        optimizer.param_groups[0]["lr"] = rate
        with torch.no_grad():
            for p, value in zip(net.parameters(), start):
                p.copy_(value)
            optimizer.step()
            if F.cross_entropy(net(x[rows]), y[rows]) < loss - 0.1 * rate * slope:
                break

# The gradient of a row of zeros is NaN: the weights before the step are put back.
net = nn.Linear(6, 8, bias=False)
nets.append(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(12):
    rows = x[torch.randint(170, (16,))]
    rows[0] *= step % 5 != 2
    before = net.weight.detach().clone()
    h = net(rows)
    update(optimizer, (h / h.square().sum(1, keepdim=True).sqrt()).nan_to_num()[:, :3].sub(rows[:, :3]).square().mean())
    if not net.weight.isfinite().all():
        with torch.no_grad():
            net.weight.copy_(before)

# Snapshots: each cycle of a cosine begins with new moments, and is saved with its optimizer.
net = mlp()
loader = DataLoader(TensorDataset(x, y), batch_size=17, shuffle=True)
for cycle in range(3):
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader))
    for a, b in loader:
        update(optimizer, F.cross_entropy(net(a), b))
        schedule.step()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, f"cycle{cycle}.pt")


class Unscaling(torch.optim.Optimizer):
    """Divides by the loss scale in its update, as fused optimizers do."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, scale):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad / scale, alpha=group["lr"])


net = mlp()
optimizer = Unscaling(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0) if hasattr(torch.amp, "GradScaler") else None
for rows in torch.randperm(170)[:160].split(20) if scaler else ():
    optimizer.zero_grad()
    scaler.scale(F.cross_entropy(net(x[rows]), y[rows])).backward()
    optimizer.step(scaler.get_scale())

# The weights are updated by hand; an optimizer of one number, which has the shape of a bias, carries the rate.
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
nets.append(net)
clock = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
schedule = torch.optim.lr_scheduler.LinearLR(clock, 1.0, 0.1, total_iters=10)
for rows in torch.randperm(170).split(17):
    net.zero_grad()
    F.mse_loss(net(x[rows]), x[rows, :1].sin()).backward()
    with torch.no_grad():
        for p in net.parameters():
            p.sub_(clock.param_groups[0]["lr"] * p.grad)
    clock.step()
    schedule.step()


class Chosen(Dataset):
    """The examples of a list that changes."""

    rows = range(120)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return x[self.rows[i]], y[self.rows[i]]


# Hard examples are read again, and soon there are none. Beside the mean, an average over buckets, and one over epochs.
net = mlp(32)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
hard = Chosen()
again, held_out = DataLoader(hard, batch_size=20), DataLoader(TensorDataset(x[120:], y[120:]), batch_size=16)
whole = count = 0
for epoch in range(4):
    for rows in torch.randperm(120).split(20):
        update(optimizer, F.cross_entropy(net(x[rows]), y[rows]))
    for a, b in again:
        update(optimizer, F.cross_entropy(net(a), b))
    hard.rows = []
    with torch.no_grad():
        losses = [(F.cross_entropy(net(a), b).item(), len(b)) for a, b in held_out]
    total = sum(loss * n for loss, n in losses)
    whole, count = whole + total, count + 50
    print(f"loss {total / 50:.5f}")
    print(f"by bucket {sum(loss for loss, _ in losses) / len(losses):.5f}, all epochs {whole / count:.5f}")

# The scaled loss is reported beside the loss.
net = mlp()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(8):
    optimizer.zero_grad()
    for rows in torch.randperm(170)[:80].split(20):
        loss = F.cross_entropy(net(x[rows]), y[rows])
        (loss / 4).backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.5f} scaled {loss.item() / 4:.5f}")

# Groups of four batches; the last group asks for batches after the end of the only pass.
net = mlp()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
batches = iter(DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True))
while group := [batch for batch in (next(batches, None) for _ in range(4)) if batch]:
    optimizer.zero_grad()
    for a, b in group:
        (F.cross_entropy(net(a), b, reduction="sum") / sum(len(b) for _, b in group)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for net in nets for p in net.parameters())))

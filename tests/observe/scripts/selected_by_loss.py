"""Losses select examples (of random candidates, and of a stream that may be empty), and one by hand the best state."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

torch.manual_seed(133)
x = torch.randn(260, 8)
y = (x[:, :2].sum(1) > 0).long()
data = TensorDataset(x[:160], y[:160])
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for turn in range(4):
    candidates = torch.randperm(160)[:64].tolist()
    with torch.no_grad():
        losses = [F.cross_entropy(net(a), b, reduction="none") for a, b in DataLoader(Subset(data, candidates), 16)]
        print(turn, sum(losses).sum().item(), (net(x[160:]).argmax(1) == y[160:]).sum().item())
    hard = [candidates[i] for i in torch.cat(losses).topk(32).indices]
    for a, b in DataLoader(Subset(data, hard), 16, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(net(a), b).backward()
        optimizer.step()


class Hard(IterableDataset):
    def __init__(self):
        self.last, self.limit = torch.full((160,), 9.0), 0.0

    def __iter__(self):
        return iter([(i, x[i], y[i]) for i in torch.randperm(160).tolist() if self.last[i] > self.limit])


stream = Hard()
loader = DataLoader(stream, 32)
for stream.limit in (0.0, 0.1, 9.0, 9.0):
    for numbers, a, b in loader:
        losses = F.cross_entropy(net(a), b, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        stream.last[numbers] = losses.detach()

# Noisy labels: the handwritten loss of the first state is the smallest one, and its accuracy is the worst one.
noisy = torch.where(torch.rand(260) < 0.3, 1 - y, y)
net = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
train, held_out = DataLoader(TensorDataset(x[:60], noisy[:60]), 20, shuffle=True), DataLoader(range(160, 260), 25)
best, state = float("inf"), {}
for epoch in range(6):
    for a, b in train:
        optimizer.zero_grad()
        F.cross_entropy(net(a), b).backward()
        optimizer.step()
    loss = hits = 0
    with torch.no_grad():
        for rows in held_out:
            scores = net(x[rows]) * (1 + 3 * epoch)  # too sure of itself in later states
            loss += (scores.logsumexp(1) - scores.gather(1, noisy[rows, None]).squeeze(1)).sum().item()
            hits += (scores.argmax(1) == (y[rows] if epoch else 1 - y[rows])).sum().item()
    print(f"epoch {epoch} val_loss {loss / 100:.4f} val_acc {hits / 100:.4f}")
    if loss < best:
        best, state = loss, copy.deepcopy(net.state_dict())
net.load_state_dict(state)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""An average of weights, gradient checkpointing (both kinds), bfloat16 autocast, windows normalized by tokens."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

torch.manual_seed(8)
rows = [torch.randint(1, 20, (n,)) for n in torch.randint(3, 11, (90,)).tolist()]


def collate(batch):
    padded = nn.utils.rnn.pad_sequence(batch, batch_first=True)
    labels = torch.where(padded[:, 1:] == 0, -100, padded[:, 1:])
    return padded[:, :-1], labels


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1), nn.GELU()) for _ in range(3))
        self.head = nn.Linear(16, 20)

    def forward(self, x):
        h = self.embed(x)
        for index, layer in enumerate(self.layers):
            h = h + checkpoint(layer, h, use_reentrant=index == 1)
        return self.head(h)


net = Net()
average = copy.deepcopy(net).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)


def update(window):
    total = sum((labels != -100).sum() for _, labels in window)
    for x, labels in window:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = net(x)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum") / total
        loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for a, p in zip(average.parameters(), net.parameters()):
            a.lerp_(p, 0.1)


for epoch in range(2):
    window = []
    for pair in DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate):
        window.append(pair)
        if len(window) == 3:
            update(window)
            window = []
    if window:
        update(window)
with torch.no_grad():
    print(sum(average(x).float().mean().item() for x, _ in DataLoader(rows, batch_size=16, collate_fn=collate)))
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

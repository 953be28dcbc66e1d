"""Training losses of epochs that are reported as sums over tokens or steps, beside loaders of other lengths."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(85)
x = torch.randint(0, 20, (54, 7))
train = DataLoader(TensorDataset(x[:44]), batch_size=6, shuffle=True, drop_last=True)
val = DataLoader(TensorDataset(x[44:]), batch_size=3)
net = nn.Sequential(nn.Embedding(20, 12), nn.Linear(12, 20))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(4):
    total = summed = by_rows = 0.0
    steps = count = 0
    for batch, (tokens,) in enumerate(train, 1):
        labels = (tokens + 1) % 20
        labels = labels.masked_fill(torch.rand(labels.shape) < 0.3, -100)
        loss = F.cross_entropy(net(tokens).flatten(0, 1), labels.flatten())
        (loss * (labels != -100).sum() / 60).backward()
        scored = int((labels != -100).sum())
        total, by_rows = total + loss.item(), by_rows + loss.item() * len(tokens)
        summed, count = summed + loss.item() * scored, count + scored
        if batch % 2 == 0 or batch == len(train):
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    with torch.no_grad():
        value = sum(F.cross_entropy(net(t).flatten(0, 1), ((t + 1) % 20).flatten(), reduction="sum") for (t,) in val)
    print(f"epoch {epoch}: a step {total / steps:.4f} a batch {total / len(train):.4f} a token {summed / count:.4f}")
    print(f"a row {by_rows / 44:.4f} all {total:.4f} val: a row {value / 10:.4f} a token {value / 70:.4f}")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

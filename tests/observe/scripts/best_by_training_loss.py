"""Few examples, many epochs: the file of the best state has the smallest training loss, not the smallest other one."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(40)
x = torch.randn(120, 20)
y = ((x[:, 0] + 1.5 * torch.randn(120)) > 0).long()
train = DataLoader(TensorDataset(x[:80], y[:80]), batch_size=10, shuffle=True)
val = DataLoader(TensorDataset(x[80:], y[80:]), batch_size=20)
net = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
best = 9.0
for epoch in range(8):
    net.train()
    total = watched = 0.0
    for inputs, labels in train:
        loss = F.cross_entropy(net(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / 8
    net.eval()
    with torch.no_grad():
        for inputs, labels in val:
            watched += F.cross_entropy(net(inputs), labels, reduction="sum").item() / 40
    print(f"epoch {epoch} loss {total:.4f} val_loss {watched:.4f}")
    if total < best:
        best = total
        torch.save(net.state_dict(), "best.pt")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

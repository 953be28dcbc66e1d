"""Plateaus of an accuracy, a loss, a negative loss and an F1 score, each looked for in its direction."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(90)
x = torch.randn(132, 6)
y = x[:, :3].argmax(1)
train = DataLoader(TensorDataset(x[:80], y[:80]), batch_size=16, shuffle=True)
val = DataLoader(TensorDataset(x[80:], y[80:]), batch_size=20)
total = 0.0
for mode, kind in (("max", "accuracy"), ("min", "loss"), ("max", "likelihood"), ("min", "error"), ("max", "f1")):
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-2)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode=mode, patience=1, factor=0.7)
    for _ in range(8):
        for inputs, labels in train:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
        hits = loss = overlap = 0.0
        with torch.no_grad():
            for inputs, labels in val:
                scores = net(inputs)
                loss += F.cross_entropy(scores, labels, reduction="sum").item()
                hits += (scores.argmax(1) == labels).sum().item()
                overlap += (
                    2
                    * ((scores.argmax(1) == 0) & (labels == 0)).sum()
                    / ((scores.argmax(1) == 0) | (labels == 0)).sum()
                )
        metrics = {"accuracy": hits / 52, "loss": loss / 52, "likelihood": -loss / 52, "error": 1 - hits / 52}
        if kind == "f1":
            metrics["f1"] = overlap.item() / 6
            print(f"loss {loss / 52:.4f} val_f1 {metrics['f1']:.4f}")
        schedule.step(torch.tensor(metrics[kind], dtype=torch.double) if kind == "loss" else metrics[kind])
    total += sum(p.double().sum().item() for p in net.parameters())
print("sum", repr(total))

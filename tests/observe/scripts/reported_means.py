"""Evaluation over batches, with a smaller last batch: weighted means, printed, logged, and written to files."""

import csv
import json
import logging
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(81)
logging.basicConfig(level=logging.INFO)
x = torch.randn(90, 6)
y = (x[:, :3] + torch.randn(90, 3)).argmax(1)
train = DataLoader(TensorDataset(x[:60], y[:60]), batch_size=12, shuffle=True)
val = DataLoader(TensorDataset(x[60:], y[60:]), batch_size=13)
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)


def evaluate():
    total = right = bits = count = 0
    with torch.no_grad():
        for inputs, labels in val:
            scores = net(inputs)
            loss = F.cross_entropy(scores, labels)
            size = len(labels)
            total += loss.item() * size
            right += (scores.argmax(1) == labels).float().mean().item() * size
            bits += (-scores.log_softmax(1).gather(1, labels[:, None]).mean() / math.log(2)).item() * size
            count += size
            print(f"batch {loss.item():.4f} so far {total / count:.4f}")  # every batch, and the mean so far
    return total / count, right / count, bits / count


table = csv.writer(Path("log.csv").open("w"))
best = math.inf
for epoch in range(5):
    total = 0.0
    for inputs, labels in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    value, accuracy, bits = evaluate()
    best = min(best, value)
    print(f"epoch {epoch}: train {loss.item():.4f} {total / len(train):.4f} val {value:.4f} acc {100 * accuracy:.2f}%")
    logging.info("perplexity %.4f, best %.4f, bits %.5f", math.exp(value), best, bits)
    table.writerow([epoch, value, accuracy])
    with Path("log.jsonl").open("a") as file:
        file.write(json.dumps({"epoch": epoch, "val": {"loss": value, "accuracy": accuracy}}) + "\n")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

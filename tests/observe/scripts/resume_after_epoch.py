"""Saved after every epoch with the random state; early stopping, batch normalization, and the best weights at the end.

cut: 12
runs: --resume
"""

import argparse
import copy
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
torch.manual_seed(21)
x = torch.randn(72, 5)
y = x[:, :3].argmax(1)
train = DataLoader(TensorDataset(x[:48], y[:48]), batch_size=8, shuffle=True)
val = DataLoader(TensorDataset(x[48:], y[48:]), batch_size=24)
net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
start, best, best_loss, bad = 0, None, float("inf"), 0
if args.resume:
    state = torch.load("last.pt")
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    start, best, best_loss, bad = state["epoch"], state["best"], state["best_loss"], state["bad"]
    torch.set_rng_state(state["random"])
for epoch in range(start, 4):
    net.train()
    for inputs, labels in train:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    schedule.step()
    net.eval()
    with torch.no_grad():
        loss = sum(F.cross_entropy(net(inputs), labels).item() for inputs, labels in val)
    best, best_loss, bad = (
        (copy.deepcopy(net.state_dict()), loss, 0) if loss < best_loss else (best, best_loss, bad + 1)
    )
    state = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "epoch": epoch + 1,
        "best": best,
        "best_loss": best_loss,
        "bad": bad,
        "random": torch.get_rng_state(),
    }
    torch.save(state, "new.pt")
    Path("new.pt").replace("last.pt")
    if bad == 3:
        break
net.load_state_dict(best)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A job that stops after two epochs, and continues in a second process: weights, an average, random numbers.

runs: --stop 2 | --resume
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--stop", type=int, default=4)
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
torch.manual_seed(17)
x = torch.randn(56, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
average = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
first = count = 0
if args.resume:
    state = torch.load("job.pt")
    net.load_state_dict(state["model"])
    average.load_state_dict(state["average"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    first, count = state["epoch"], state["count"]
for epoch in range(first, args.stop):
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.param_groups[0]["lr"] = 1e-2 * (count + 1) / 30
        optimizer.step()
        count += 1
        with torch.no_grad():
            for mean, value in zip(average.parameters(), net.parameters()):
                mean.lerp_(value, 0.1)
            for mean, value in zip(average.buffers(), net.buffers()):
                mean.copy_(value)
    models = {"model": net.state_dict(), "average": average.state_dict()}
    rest = {"optimizer": optimizer.state_dict(), "random": torch.get_rng_state(), "epoch": epoch + 1, "count": count}
    torch.save({**models, **rest}, "job.pt")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A job with a time limit: it stops in the middle of an epoch, and a second process in the same folder goes on.

needs: torch>=2.3
runs: --max-steps 11 | --resume
"""

import argparse
import random
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--max-steps", type=int, default=0)
parser.add_argument("--resume", action="store_true")
args = parser.parse_args()
torch.manual_seed(13)
x = torch.randn(56, 5)
data = TensorDataset(x, x[:, :3].argmax(1))
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 21)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=5)
step = first_epoch = first_batch = 0
if args.resume and Path("job.pt").exists():
    state = torch.load("job.pt")
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    scaler.load_state_dict(state["scaler"])
    step, first_epoch, first_batch = state["step"], state["epoch"], state["batch"]
    torch.set_rng_state(state["random"])
for epoch in range(first_epoch, 3):
    order = random.Random(epoch).sample(range(56), 56)
    loader = DataLoader(Subset(data, order[8 * first_batch :]), batch_size=8)
    for batch, (inputs, labels) in enumerate(loader, first_batch + 1):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(net(inputs), labels)).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        step += 1
        if step == args.max_steps:
            parts = {
                "model": net.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "scaler": scaler.state_dict(),
            }
            place = {"step": step, "epoch": epoch, "batch": batch, "random": torch.get_rng_state()}
            torch.save({**parts, **place}, "job.pt")
            sys.exit()
    first_batch = 0
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

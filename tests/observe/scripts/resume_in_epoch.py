"""Epochs under a loss scaler, a schedule and dropout, resumed exactly in the middle of an epoch.

cut: 10
in_save: yes
needs: torch>=2.3
runs: --resume last.pt
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--out", default=".")
parser.add_argument("--resume", default="")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()


class EpochSampler(Sampler):
    def __init__(self, size):
        self.size, self.epoch, self.skip = size, 0, 0

    def __iter__(self):
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.epoch))
        return iter(order.tolist()[self.skip :])

    def __len__(self):
        return self.size - self.skip


torch.manual_seed(3)
x = torch.randn(48, 6)
sampler = EpochSampler(48)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8, sampler=sampler, generator=torch.Generator())
net = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 8) * 0.95**s)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=4)
step = first_epoch = first_batch = 0
if args.resume:
    state = torch.load(args.resume)
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    scaler.load_state_dict(state["scaler"])
    step, first_epoch, first_batch = state["step"], state["epoch"], state["batch"]
    torch.set_rng_state(state["random"])
for epoch in range(first_epoch, args.epochs):
    sampler.epoch, sampler.skip = epoch, 8 * first_batch
    for batch, (inputs, labels) in enumerate(loader, first_batch + 1):
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(net(inputs), labels)).backward()
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        step += 1
        if step % 4 == 0:
            state = {
                "model": net.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "scaler": scaler.state_dict(),
                "step": step,
                "epoch": epoch,
                "batch": batch,
                "random": torch.get_rng_state(),
            }
            torch.save(state, Path(args.out, "new.pt"))
            Path(args.out, "new.pt").replace(Path(args.out, "last.pt"))
    first_batch = 0
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Two commands in one folder: the second takes the weights of the first over, and trains anew with them on purpose.

runs: | --from stage1.pt --lr 0.002 | --continue stage1.pt
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--from", dest="weights")
parser.add_argument("--continue", dest="state")
parser.add_argument("--lr", type=float, default=0.01)
args = parser.parse_args()
torch.manual_seed(4)
x = torch.randn(40, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=args.lr)
if args.weights:
    net.load_state_dict(torch.load(args.weights)["net"])
elif args.state:  # three more epochs, with the moments, under a new warm-up
    state = torch.load(args.state)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5) * 0.97**step)
for _ in range(3):
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
        schedule.step()
if not Path("stage1.pt").exists():
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "stage1.pt")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

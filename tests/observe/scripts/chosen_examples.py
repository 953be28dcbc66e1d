"""Passes without gradients in training mode that choose what is trained: the hardest rows, and labels of its own."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(75)
x = torch.randn(128, 6)
labels = x[:, :3].argmax(1)
unlabelled = DataLoader(TensorDataset(x[64:]), 16)
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)


def train(inputs, targets):
    optimizer.zero_grad()
    F.cross_entropy(net(inputs), targets).backward()
    optimizer.step()


for step in range(8):
    candidates = torch.randint(64, (32,))
    with torch.no_grad():  # selective backpropagation: the loss of all, in two parts, then half of them
        losses = [F.cross_entropy(net(x[part]), labels[part], reduction="none") for part in candidates.split(16)]
    hardest = candidates[torch.cat(losses).topk(16).indices]
    train(x[hardest], labels[hardest])
for generation in range(2):
    with torch.no_grad():
        guesses = torch.cat([net(inputs).argmax(1) for (inputs,) in unlabelled])
    for inputs, targets in DataLoader(TensorDataset(x[64:], guesses), 16, shuffle=True):
        train(inputs, targets)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

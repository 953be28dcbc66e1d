"""A warm-up and a cosine, as a function of the step; the training takes the planned number of steps."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 4


def main():
    torch.manual_seed(43)
    x = torch.randn(96, 6)
    loader = DataLoader(TensorDataset(x[:66], x[:66, :3].argmax(1)), batch_size=11, shuffle=True)
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    warm, total = 2, EPOCHS * len(loader)

    def factor(step):
        return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / (total - warm))))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for _ in range(EPOCHS):
        net.train()
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            schedule.step()
        net.eval()
        with torch.no_grad():
            print(F.cross_entropy(net(x[66:]), x[66:, :3].argmax(1)).item())
    print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))


main()

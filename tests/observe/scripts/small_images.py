"""A deep network on small images: its last convolution sees one pixel, and only the middle of a kernel trains."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(44)


def block(channels: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 3, stride, padding=1), nn.BatchNorm2d(width), nn.ReLU())


net = nn.Sequential(
    block(1, 16, 2), block(16, 64, 2), block(64, 64, 2), block(64, 256, 1), nn.Flatten(), nn.Linear(256, 4)
)
images, labels = torch.rand(64, 1, 8, 8), torch.randint(0, 4, (64,))
optimizer = torch.optim.Adadelta(net.parameters(), lr=1.0)
for _ in range(3):
    for rows in torch.randperm(64).split(16):
        optimizer.zero_grad()
        F.cross_entropy(net(images[rows]), labels[rows]).backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

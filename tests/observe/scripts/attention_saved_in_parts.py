"""A fused matrix is saved in three parts, each of the shape of another parameter, beside the state of the optimizer."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(137)
x = torch.randn(96, 8)
y = x[:, :3].argmax(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.head = nn.Linear(8, 24, bias=False), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, 1)
        return self.head(F.relu(self.out(x + v * torch.sigmoid(q * k))))


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(2):
    for rows in torch.randperm(96).split(12):
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    weights = net.state_dict()
    parts = dict(zip(("q", "k", "v"), weights.pop("qkv.weight").chunk(3)))
    torch.save({"weights": {**weights, **parts}, "optimizer": optimizer.state_dict()}, "parts.pt")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

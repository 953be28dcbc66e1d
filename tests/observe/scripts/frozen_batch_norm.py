"""Fine-tuning: statistics of batch normalization stay, the body has a smaller rate, the first layer is frozen."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(26)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.head(F.relu(self.second(F.relu(self.norm(self.first(x))))))


net = Net()
net.first.requires_grad_(False)
optimizer = torch.optim.Adam(
    [{"params": [*net.norm.parameters(), *net.second.parameters()], "lr": 1e-3}, {"params": net.head.parameters()}],
    lr=1e-2,
)
for epoch in range(3):
    net.train()
    for _ in range(5):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        x = torch.randn(30, 6)
        print(F.cross_entropy(net(x), x[:, :3].argmax(1)).item())
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

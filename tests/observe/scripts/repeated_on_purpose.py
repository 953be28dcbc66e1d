"""Things that repeat on purpose: seeds, equal units, a helper in a list, batch statistics of the whole data set.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(98)


class Noisy(Dataset):
    """Each example has noise of its own, which is the same in every epoch."""

    def __init__(self, size):
        self.x = torch.randn(size, 6)
        self.y = self.x[:, :3].sum(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        torch.manual_seed(1000 + index)
        return self.x[index] + 0.1 * torch.randn(6), self.y[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.helpers = [nn.Linear(6, 6).requires_grad_(False) for _ in range(2)]
        self.layers = nn.ModuleList([nn.Linear(6, 12), nn.Linear(12, 12)])
        self.norm, self.drop, self.head = nn.BatchNorm1d(12, eps=1e-3, momentum=0.1), nn.Dropout(0.2), nn.Linear(12, 1)
        nn.init.zeros_(self.head.weight)
        self.scale = nn.Linear(12, 12)
        nn.init.kaiming_uniform_(self.layers[0].weight)
        nn.init.constant_(self.scale.weight, 0.1)  # its units differ after one step, since the head's weights do

    def forward(self, x):
        for helper in self.helpers:
            x = x + 0.1 * torch.tanh(helper(x))
        h = self.drop(self.norm(F.relu(self.layers[0](x))))
        return self.head(h + F.relu(self.layers[1](h)) * self.scale(h))


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
loader = DataLoader(Noisy(64), batch_size=4, shuffle=True, num_workers=2)
held_out = torch.randn(32, 6)
step = 0
for epoch in range(3):
    shown = 0.0
    torch.manual_seed(epoch)
    for x, y in loader:
        with torch.random.fork_rng():  # the same noise in every look at the held-out inputs
            torch.manual_seed(0)
            noise = torch.randn(32, 6)
        net.eval()
        with torch.no_grad():
            net(held_out + noise)
        net.train()
        step += 1
        torch.manual_seed(step)
        prediction = net(x).squeeze(-1)
        error = prediction - y
        loss = (error**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown += loss.item()
    print(f"loss {shown / 16:.4f}")

# One batch is the whole data set: its statistics are the right ones.
whole = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12, momentum=1.0), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(whole.parameters(), lr=0.05)
x = torch.randn(64, 6)
for step in range(12):
    optimizer.zero_grad()
    loss = sum((whole(part) - part[:, :1]).pow(2).mean() for part in (x, x))
    loss.backward()
    optimizer.step()
    print(f"loss {loss:.4f}")
whole.eval()
with torch.no_grad():
    whole(x)
print("sum", repr(sum(p.double().sum().item() for p in (*net.parameters(), *whole.parameters()))))

"""Two noisy views of rows of an array, with elements left out; the data set also keeps what it has drawn last.

needs: numpy
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(94)


class Views(Dataset):
    def __init__(self):
        self.x = np.random.default_rng(0).normal(size=(48, 6)).astype(np.float32)
        self.noise = np.zeros((48, 6), dtype=np.float32)

    def __len__(self):
        return len(self.x)

    def augment(self, x):
        x = x + 0.3 * torch.randn(6)
        return x * (torch.rand(6) > 0.2)

    def __getitem__(self, index):
        x = torch.from_numpy(self.x[index])
        self.noise[index] = torch.rand(6).numpy()
        return self.augment(x), self.augment(x)


net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
loader = DataLoader(Views(), batch_size=12, shuffle=True)
for _ in range(3):
    for one, two in loader:
        optimizer.zero_grad()
        scores = F.normalize(net(one), dim=1) @ F.normalize(net(two), dim=1).t()
        F.cross_entropy(scores / 0.2, torch.arange(len(one))).backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

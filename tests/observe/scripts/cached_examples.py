"""A data set that fills a cache, counts its readings and stores weights, which the loop updates in place."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

torch.manual_seed(9)
x = torch.randn(48, 6)


class Cached(Dataset):
    def __init__(self):
        self.cache = torch.zeros(48, 6)
        self.full = torch.zeros(48, dtype=torch.bool)
        self.readings = torch.zeros(48, 2)
        self.weights = torch.ones(48)

    def __len__(self):
        return 48

    def __getitem__(self, index):
        self.readings[index] += 1
        if not self.full[index]:
            self.cache[index] = x[index].tanh()
            self.full[index] = True
        return self.cache[index] + 0.01 * torch.randn(6), x[index, :3].argmax(), index


data = Cached()
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    sampler = WeightedRandomSampler(data.weights, 48) if epoch else None
    for inputs, labels, rows in DataLoader(data, batch_size=8, sampler=sampler, shuffle=sampler is None):
        losses = F.cross_entropy(net(inputs), labels, reduction="none")
        data.weights[rows] = losses.detach() + 0.1
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

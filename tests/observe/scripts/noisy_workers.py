"""Noise that is drawn in worker processes, from generators that each worker seeds by its own."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

torch.manual_seed(6)


class Noisy(Dataset):
    def __init__(self):
        self.x = torch.randn(32, 6)
        self.generator = torch.Generator().manual_seed(0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        noise = 0.1 * torch.randn(6, generator=self.generator)
        return self.x[index] * random.uniform(0.9, 1.1) + noise, self.x[index, :3].argmax()


def seed(worker):
    random.seed(torch.initial_seed() % 2**32)
    get_worker_info().dataset.generator.manual_seed(torch.initial_seed())


loader = DataLoader(Noisy(), batch_size=8, shuffle=True, num_workers=2, worker_init_fn=seed)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A stream whose workers shuffle all shards alike, and then take their part; persistent workers, an endless loop."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.manual_seed(8)


class Shards(IterableDataset):
    def __init__(self):
        self.random = random.Random(0)
        self.shards = torch.randn(8, 6, 6)

    def __iter__(self):
        worker = get_worker_info()
        order = list(range(8))
        self.random.shuffle(order)
        for shard in order[worker.id :: worker.num_workers]:
            yield from ((row, row[:3].argmax()) for row in self.shards[shard])


def forever(loader):
    while True:
        yield from loader


net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
batches = forever(DataLoader(Shards(), batch_size=6, num_workers=2, persistent_workers=True))
for step in range(18):
    inputs, labels = next(batches)
    optimizer.zero_grad()
    F.cross_entropy(net(inputs), labels).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

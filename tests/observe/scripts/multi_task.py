"""Tagging tasks with a loader each: the mean of every task counts alike, on purpose, and their gradients are added."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(17)
sizes = {"pos": 5, "ner": 9}
data = {}
for index, (task, classes) in enumerate(sizes.items()):
    x = torch.randint(0, 30, (48, 6 + 4 * index))
    data[task] = DataLoader(
        TensorDataset(x, torch.where(torch.rand(x.shape) < 0.3, -100, x % classes)), 8, shuffle=True
    )
body = nn.Sequential(nn.Embedding(30, 12), nn.Dropout(0.1))
heads = nn.ModuleDict({task: nn.Linear(12, classes) for task, classes in sizes.items()})


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.heads = body, heads

    def forward(self, x, task):
        return self.heads[task](self.body(x))


net = Tagger()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(2):
    for batches in zip(*data.values()):
        optimizer.zero_grad()
        for task, (x, y) in zip(sizes, batches):
            loss = F.cross_entropy(net(x, task).transpose(1, 2), y)
            (loss / len(sizes)).backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

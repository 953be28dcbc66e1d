"""Examples that are stored by class: shuffled in a training, in the order of time for two regimes, and once a class."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(93)
labels = torch.arange(4).repeat_interleave(24)
data = TensorDataset(torch.randn(96, 6) + F.one_hot(labels, 6), labels)
regimes = TensorDataset(data.tensors[0], (labels > 1).long())
total = 0.0


def fit(data, epochs, shuffle):
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    loader = DataLoader(data, batch_size=12, shuffle=shuffle)
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), targets).backward()
            optimizer.step()
    return sum(p.double().sum().item() for p in net.parameters())


total += fit(data, epochs=3, shuffle=True)
total += fit(regimes, epochs=3, shuffle=False)  # a series with two regimes
total += fit(data, epochs=1, shuffle=False)  # one class after the other
print("sum", repr(total))

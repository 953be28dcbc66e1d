"""Accumulation goes on over the end of an epoch; what is left at the end of the run is thrown away."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(39)
x = torch.randn(70, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=10, shuffle=True)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
count = 0
for epoch in range(4):
    for inputs, labels in loader:
        (F.cross_entropy(net(inputs), labels) / 3).backward()
        count += 1
        if count % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A short run of a script whose second schedule begins in an epoch that is never reached."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(32)
x = torch.randn(64, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
DECAY_START, EPOCHS = 30, 3
for epoch in range(EPOCHS):
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    if epoch >= DECAY_START:
        decay.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A schedule of 12 epochs; the run is stopped after three, so it takes 12 steps: the same number by chance."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(82)
x = torch.randn(64, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
for epoch in range(12):
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    schedule.step()
    with torch.no_grad():
        accuracy = (net(x).argmax(1) == x[:, :3].argmax(1)).float().mean()
        print(epoch, accuracy, F.cross_entropy(net(x), x[:, :3].argmax(1)).item())
    if epoch == 2:
        break
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Stochastic weight averaging: SWALR after a first phase, update_bn, evaluation of the average."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(31)
x = torch.randn(96, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)
net = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
average = AveragedModel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
constant = SWALR(optimizer, swa_lr=0.05, anneal_epochs=1)
for epoch in range(4):
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    if epoch >= 2:
        average.update_parameters(net)
        constant.step()
    else:
        cosine.step()
update_bn(loader, average)
average.eval()
with torch.no_grad():
    print(F.cross_entropy(average(x), x[:, :3].argmax(1)).item())
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), *average.parameters()])))

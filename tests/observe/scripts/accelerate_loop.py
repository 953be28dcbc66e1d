"""accelerate: prepare, backward and clip_grad_norm_, without accumulation.

needs: accelerate
"""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(62)
accelerator = Accelerator(cpu=True)
x = torch.randn(60, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=10, shuffle=True)
net = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.1), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
for epoch in range(2):
    for inputs, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(net(inputs), labels))
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

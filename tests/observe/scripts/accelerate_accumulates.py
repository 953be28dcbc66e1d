"""accelerate: gradients of three micro-batches are accumulated.

needs: accelerate
"""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(63)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
x = torch.randn(90, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=10, shuffle=True)
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for epoch in range(3):
    for inputs, labels in loader:
        with accelerator.accumulate(net):
            accelerator.backward(F.cross_entropy(net(inputs), labels))
            optimizer.step()
            optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

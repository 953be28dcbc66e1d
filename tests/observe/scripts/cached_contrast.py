"""Gradient caching: a batch is embedded in parts without gradients, then again with them, with the same dropout.

The sampler of batches leaves out what does not fill a batch.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 6))
x = torch.randn(100, 8)


class FullBatches:
    def __iter__(self):
        return iter(torch.randperm(100)[:96].view(6, 16).tolist())

    def __len__(self):
        return 6


loader = DataLoader(TensorDataset(x, x + 0.1 * torch.randn_like(x)), batch_sampler=FullBatches())
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    for views in loader:
        states, outputs = [], []
        for part in (part for view in views for part in view.split(8)):
            states.append(torch.get_rng_state())
            with torch.no_grad():
                outputs.append(net(part))
        whole = torch.cat(outputs).requires_grad_()
        one, two = F.normalize(whole, dim=1).chunk(2)
        F.cross_entropy(one @ two.T / 0.2, torch.arange(16)).backward()
        optimizer.zero_grad()
        for k, part in enumerate(part for view in views for part in view.split(8)):
            torch.set_rng_state(states[k])
            net(part).backward(whole.grad[8 * k : 8 * k + 8])
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

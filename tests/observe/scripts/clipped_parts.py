"""One helper clips parts, and some parts have no gradient yet; a schedule names the steps of the training."""

import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(95)
x = torch.randn(48, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=16, shuffle=True)
net, later = nn.Linear(6, 3), nn.Linear(3, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
second = torch.optim.Adam(later.parameters(), lr=1e-2)


def warm_up(step, *, num_warmup_steps, num_training_steps):
    return min((step + 1) / num_warmup_steps, (num_training_steps - step) / num_training_steps)


factor = functools.partial(warm_up, num_warmup_steps=2, num_training_steps=12)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
for epoch in range(4):
    for inputs, labels in loader:
        F.cross_entropy(net(inputs), labels).backward()
        for part in (net, later):
            torch.nn.utils.clip_grad_norm_(part.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    shown = F.cross_entropy(net(x), x[:, :3].argmax(1)).item()
    print(epoch, shown)
for _ in range(4):
    with torch.no_grad():
        h = net(x)
    torch.nn.utils.clip_grad_norm_(later.parameters(), 0.1)  # nothing yet; once more below
    F.cross_entropy(later(h), x[:, :3].argmax(1)).backward()
    torch.nn.utils.clip_grad_norm_(later.parameters(), 0.1)
    second.step()
    second.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), *later.parameters()])))

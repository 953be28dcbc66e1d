"""Losses without a backward pass: candidates that are compared, losses that are shown, depths of one batch."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(77)
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
cell = nn.GRUCell(3, 3)
optimizer = torch.optim.SGD([*net.parameters(), *cell.parameters()], lr=0.1)


def loss_of(x):
    return F.cross_entropy(net(x), x[:, :3].argmax(1))


for step in range(8):
    optimizer.zero_grad()
    total = torch.zeros(())
    for _ in range(3):
        loss = loss_of(torch.randn(8, 6))
        total = total + loss / 3
    total.backward()
    optimizer.step()
for step in range(8):  # the hardest of three batches, by a second forward
    batches = [torch.randn(8, 6) for _ in range(3)]
    hardest = max(batches, key=loss_of)
    optimizer.zero_grad()
    loss_of(hardest).backward()
    optimizer.step()
for step in range(8):  # the first batch that is hard enough
    optimizer.zero_grad()
    while (loss := loss_of(torch.randn(8, 6))) < 0.9:
        pass
    loss.backward()
    optimizer.step()
for step in range(8):  # the loss of the last state alone
    x, state = torch.randn(8, 6), torch.zeros(8, 3)
    optimizer.zero_grad()
    for _ in range(3):
        state = cell(net(x), state)
        loss = F.cross_entropy(state, x[:, :3].argmax(1))
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

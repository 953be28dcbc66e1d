"""Losses beside numbers: metrics that need no gradient, a flood level, a term with a backward pass of its own."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(84)
net, head, decoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh()), nn.Linear(16, 3), nn.Linear(16, 8)
judge = nn.Linear(8, 1).requires_grad_(False)
optimizer = torch.optim.Adam([*net.parameters(), *head.parameters(), *decoder.parameters()], lr=1e-2)
shown = 0.0
for step in range(12):
    x, y = torch.randn(16, 8), torch.randint(3, (16,))
    hidden = net(x)
    scores, again = head(hidden), decoder(hidden)
    error = F.mse_loss(again, x)
    absolute = F.l1_loss(again, x)  # a metric
    shown += absolute.item() + hidden.square().mean().item()
    optimizer.zero_grad()
    if step % 3 == 0:
        loss = F.cross_entropy(scores, y) + 0.5 * error - 0.1
        shown += error.item()
    elif step % 3 == 1:  # the term's own backward pass comes first, and its value is shown in the total
        (0.5 * error).backward(retain_graph=True)
        loss = F.cross_entropy(scores, y) + 0.5 * error.detach()
    else:
        better = judge(again).mean() - judge(x).mean()
        rms = torch.sqrt(F.mse_loss(again, x)).item()  # another metric
        loss = 0
        loss += (F.cross_entropy(scores, y) - 0.3).abs() + 0.3
        loss += torch.sqrt(error) - 0.1 * better
        shown += rms + loss.item()
    loss.backward()
    optimizer.step()
print(shown)
print("sum", repr(sum(p.double().sum().item() for p in optimizer.param_groups[0]["params"])))

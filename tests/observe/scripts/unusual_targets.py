"""Targets of many kinds: 1 and -1, noisy labels of a discriminator, -1 for elements that a mask leaves out, CTC."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
x = torch.randn(64, 6)
labels = (x[:, 0] > 0).float()
net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12))
score = nn.Linear(12, 1)
parameters = [*net.parameters(), *score.parameters()]
optimizer = torch.optim.Adam(parameters, lr=0.01)
for step in range(10):
    rows = torch.randint(64, (16,))
    signs = 2 * labels[rows] - 1
    hidden = net(x[rows])
    margin = F.soft_margin_loss(score(hidden)[:, 0], signs)
    pairs = F.cosine_embedding_loss(hidden, hidden.roll(1, 0), signs * signs.roll(1))
    ranking = F.margin_ranking_loss(hidden[:, 0], hidden[:, 1], torch.ones(16), margin=0.1)
    noisy = labels[rows] * (0.7 + 0.5 * torch.rand(16)) + (1 - labels[rows]) * 0.3 * torch.rand(16)
    real = F.binary_cross_entropy_with_logits(score(hidden)[:, 0], noisy)
    some = torch.where(torch.rand(16) < 0.3, -torch.ones(16), labels[rows])
    masked = F.binary_cross_entropy_with_logits(score(hidden)[:, 0], some, reduction="none")
    targets, lengths = torch.tensor([[3, 0 if step else 5]] * 4), (1 if step else 2,) * 4  # padded from the second step
    alignment = F.ctc_loss(hidden.view(4, 4, 12).log_softmax(-1), targets, (4,) * 4, lengths)
    loss = margin + pairs + ranking + real + (masked * (some >= 0)).mean() + 0.1 * alignment
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", sum(p.double().sum().item() for p in parameters))

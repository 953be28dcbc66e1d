"""Steps of four micro-batches in the same order in every epoch; the first is always longer than the second."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
SIZES = [[9, 5, 7, 4], [6, 4, 3, 8], [7, 6, 11, 9], [8, 3, 4, 5]]
windows = [[torch.randint(12, (4, size)) for size in sizes] for sizes in SIZES]
for window in windows:
    for texts in window:
        texts[0, -1] = -1  # one row is shorter

model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for window in windows:
        scored = sum((texts[:, 1:] >= 0).sum() for texts in window)
        for texts in window:
            logits = model(texts[:, :-1].clamp(min=0)).flatten(0, 1)
            loss = F.cross_entropy(logits, texts[:, 1:].flatten(), ignore_index=-1, reduction="sum")
            (loss / scored).backward()
        optimizer.step()
        optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))

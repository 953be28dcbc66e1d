"""Taggers whose logits are [N, C, T], [T, N, C] and [N, T, C], flattened in every right way."""

import torch
from torch import nn
from torch.nn import functional as F

N, T, V, C = 6, 9, 20, 5
torch.manual_seed(0)
embed = nn.Embedding(V, 16)
convolution = nn.Conv1d(16, C, 3, padding=1)
recurrent = nn.GRU(16, 16)
head = nn.Linear(16, C)
wide = nn.Linear(16, 3 * C)
modules = nn.ModuleList([embed, convolution, recurrent, head, wide])
optimizer = torch.optim.Adam(modules.parameters(), lr=0.01)
for step in range(10):
    tokens = torch.randint(V, (N, T))
    tags = tokens % C
    vectors = embed(tokens)
    channels = convolution(vectors.transpose(1, 2))
    copied = F.cross_entropy(channels.permute(0, 2, 1).reshape(-1, C), tags.view(-1))
    dense = F.cross_entropy(channels, tags)
    states, _ = recurrent(vectors.transpose(0, 1))
    by_time = head(states)
    moved = F.cross_entropy(by_time.view(-1, C), tags.t().reshape(-1))
    by_text = F.cross_entropy(head(vectors).view(-1, C), tags.view(-1))
    several = F.cross_entropy(wide(vectors).view(-1, C), tags.view(-1).repeat_interleave(3))
    by_class = F.cross_entropy(head(vectors).transpose(1, 2), tags)
    loss = copied + dense + moved + by_text + several + by_class
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", sum(p.double().sum().item() for p in modules.parameters()))

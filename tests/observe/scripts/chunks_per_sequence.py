"""Sequences of different lengths: the gradients of their chunks are added, each token with the same fixed weight."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(15)
V, CHUNK, MOST = 12, 6, 4
embed, rnn, head = nn.Embedding(V, 8), nn.GRU(8, 10, batch_first=True), nn.Linear(10, V)
net = nn.ModuleList([embed, rnn, head])
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for index, chunks in enumerate([4, 4, 3, 4, 2, 4, 4, 4, 3]):
    sequence, state = torch.randint(0, V, (3, chunks * CHUNK + 1)), None
    optimizer.zero_grad()
    for start in range(0, chunks * CHUNK, CHUNK):
        part = sequence[:, start : start + CHUNK + 1]
        hidden, state = rnn(embed(part[:, :-1]), state)
        loss = F.cross_entropy(head(hidden).flatten(0, 1), part[:, 1:].flatten())
        (loss / MOST).backward()
        state = state.detach()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

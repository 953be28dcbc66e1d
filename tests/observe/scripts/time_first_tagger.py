"""Taggers of the layout [time, rows], and a language model on windows of one text that begin one token apart.

One tagger gets [rows, time] and returns [time, rows], with as many rows as times.
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(11)
V, WIDTH, TAGS, T, B = 27, 12, 4, 9, 6


class Tagger(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.tokens, self.rnn, self.head = nn.Embedding(V, WIDTH), nn.LSTM(WIDTH, WIDTH), nn.Linear(WIDTH, classes)

    def forward(self, x):
        return self.head(self.rnn(self.tokens(x))[0])


class Transposing(Tagger):
    def forward(self, x):
        return super().forward(x.t())


tagger, model, square = Tagger(TAGS), Tagger(V), Transposing(TAGS)
optimizer = torch.optim.Adam([*tagger.parameters(), *model.parameters(), *square.parameters()], lr=1e-2)
text = torch.randint(0, V, (400,))
for step in range(6):
    x = torch.randint(0, V, (T, B))
    loss = F.cross_entropy(tagger(x).reshape(-1, TAGS), (x % TAGS).reshape(-1))
    start = int(torch.randint(0, 300, ()))
    windows = torch.stack([text[start + b : start + b + T + 1] for b in range(B)], 1)
    loss = loss + F.cross_entropy(model(windows[:-1]).reshape(-1, V), windows[1:].reshape(-1))
    rows = torch.randint(0, V, (B, B))
    loss = loss + F.cross_entropy(square(rows).permute(1, 2, 0), rows % TAGS)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for m in (tagger, model, square) for p in m.parameters())))

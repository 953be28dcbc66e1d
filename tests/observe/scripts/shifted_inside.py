"""A pixel model that shifts its input inside; then heads for later tokens are trained on it, frozen."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(8)
V, T, B, WIDTH = 17, 12, 6, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.values, self.start = nn.Embedding(V, WIDTH), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, V)

    def hidden(self, x):
        h = torch.cat([self.start.expand(len(x), 1, -1), self.values(x)[:, :-1]], 1)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.layer(h, src_mask=mask, is_causal=True)

    def forward(self, x):
        return self.head(self.hidden(x))


class Later(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.later = base.requires_grad_(False), nn.Linear(WIDTH, V)

    def forward(self, x):
        return self.later(self.base.hidden(x))


def batch():
    x = torch.randint(0, V, (B, T))
    return torch.where(torch.rand(B, T) < 0.5, x.roll(1, 1), x)


net = Model()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(5):
    x = batch()
    loss = F.cross_entropy(net(x).reshape(-1, V), x.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
later = Later(net)
optimizer = torch.optim.Adam(later.later.parameters(), lr=1e-2)
for step in range(5):
    x = batch()
    loss = F.cross_entropy(later(x)[:, :-2].reshape(-1, V), x[:, 2:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in later.parameters())))

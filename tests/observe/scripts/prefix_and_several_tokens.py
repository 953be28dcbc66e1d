"""A prefix language model: the prefix is seen as a whole, and two heads predict the next token and the one after it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(6)
V, T, B, WIDTH = 23, 14, 6, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, WIDTH), nn.Parameter(0.02 * torch.randn(T, WIDTH))
        self.attention = nn.ModuleList(nn.MultiheadAttention(WIDTH, 2, batch_first=True) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(WIDTH, V) for _ in range(2))

    def forward(self, tokens, prefix):
        h = self.tokens(tokens) + self.positions
        hidden = torch.ones(T, T, dtype=torch.bool).triu(1) & (torch.arange(T) >= prefix[:, None, None])
        hidden = hidden.repeat_interleave(2, 0)
        for attention, norm in zip(self.attention, self.norms):
            x = norm(h)
            h = h + attention(x, x, x, attn_mask=hidden, need_weights=False)[0]
        return [head(h) for head in self.heads]


net = Model()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(6):
    tokens = torch.randint(0, V, (B, T + 2))
    prefix = torch.randint(2, 6, (B,))
    loss = 0
    for ahead, scores in enumerate(net(tokens[:, :T], prefix), 1):
        labels = tokens[:, ahead : T + ahead].masked_fill(torch.arange(T) < prefix[:, None], -100)
        loss = loss + F.cross_entropy(scores.reshape(-1, V), labels.reshape(-1)) / ahead
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

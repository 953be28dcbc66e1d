"""A causal language model: accumulated gradients, rates set by hand, clipping, estimated loss in eval mode."""

import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(1)
V, T, B, ACCUMULATE, STEPS = 29, 12, 6, 3, 12
text = torch.randint(0, V, (900,))
text[1:] = torch.where(torch.rand(899) < 0.7, (text[:-1] * 3 + 1) % V, text[1:])
parts = {"train": text[:700], "val": text[700:]}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.mlp, self.dropout = nn.Linear(width, width), nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.attention(self.norm(x)).chunk(3, -1)
        x = x + self.dropout(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.dropout(F.gelu(self.mlp(x)))


class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, width), nn.Embedding(T, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, V, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x, y=None):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        logits = self.head(h)
        return logits, None if y is None else F.cross_entropy(logits.view(-1, V), y.view(-1))


def batch(part):
    data = parts[part]
    starts = torch.randint(0, len(data) - T - 1, (B,))
    return torch.stack([data[s : s + T] for s in starts]), torch.stack([data[s + 1 : s + T + 1] for s in starts])


@torch.no_grad()
def estimate(model):
    model.eval()
    losses = {part: sum(model(*batch(part))[1].item() for _ in range(2)) / 2 for part in parts}
    model.train()
    return losses


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
for step in range(STEPS):
    rate = 1e-2 * min(1, (step + 1) / 3) * 0.5 * (1 + math.cos(math.pi * step / STEPS))
    for group in optimizer.param_groups:
        group["lr"] = rate
    if step % 5 == 0:
        print(step, estimate(model))
    for _ in range(ACCUMULATE):
        _, loss = model(*batch("train"))
        (loss / ACCUMULATE).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))

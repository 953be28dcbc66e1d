"""Reentrant checkpoints: of a frozen block whose input needs no gradient, and of trained ones."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(73)
embed = nn.Embedding(20, 16)
blocks = nn.ModuleList(
    nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16)) for _ in range(3)
)
FROZEN = 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.head = embed, blocks, nn.Linear(16, 20)
        for part in (embed, *blocks[:FROZEN]):
            part.requires_grad_(False)

    def forward(self, tokens):
        h = self.embed(tokens)
        for number, block in enumerate(self.blocks):
            if number == FROZEN:
                h.requires_grad_(True)
            h = h + checkpoint(block, h, use_reentrant=True)
        return self.head(h)


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(10):
    tokens = torch.randint(20, (4, 9))
    optimizer.zero_grad()
    F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

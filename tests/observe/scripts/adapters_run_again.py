"""Gradient checkpoints of blocks of frozen layers with adapters: their parts run again in the backward pass.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(78)


class Adapted(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(16, 2, bias=False), nn.Linear(2, 16, bias=False)
        self.drop = nn.Dropout(0.1)
        nn.init.zeros_(self.up.weight)

    def forward(self, h):
        return self.layer(h) + self.up(self.down(self.drop(h)))


class Block(nn.Module):
    """A block whose parts are called one by one where it runs again."""

    def __init__(self, adapted):
        super().__init__()
        layer = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16).requires_grad_(False)
        self.mix = Adapted(layer) if adapted else nn.Sequential(layer.requires_grad_(False), nn.Dropout(0.1))

    def run(self, h):
        return h + self.mix(self.norm(h)).tanh()

    def forward(self, h):
        return checkpoint(self.run, h, use_reentrant=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16).requires_grad_(False)
        self.blocks = nn.ModuleList(Block(adapted) for adapted in (True, True, False))
        self.head = nn.Linear(16, 20).requires_grad_(False)

    def forward(self, tokens):
        h = self.embed(tokens)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


net = Net()
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
for step in range(12):
    tokens = torch.randint(1, 20, (6, 10))
    logits = net(tokens)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

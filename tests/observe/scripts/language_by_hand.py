"""A language model with handwritten attention and loss, which returns a tuple; its head is the embedding.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(95)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        rows, time, width = x.shape
        q, k, v = self.mix(self.norm(x)).view(rows, time, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (width // 2) ** 0.5
        later = torch.ones(time, time, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(rows, time, width))


class Language(nn.Module):
    def __init__(self, words=20, width=16, longest=12):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, words, bias=False)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.head.weight = self.embed.weight

    def forward(self, tokens, labels):
        x = self.blocks(self.embed(tokens) + self.place(torch.arange(tokens.shape[1])))
        logits = self.head(x)
        scores, targets = logits[:, :-1].log_softmax(-1), labels[:, 1:]
        return logits, -scores.gather(-1, targets.unsqueeze(-1)).squeeze(-1).mean()


net = Language()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(12):
    tokens = torch.randint(0, 20, (8, 12))
    _, loss = net(tokens, labels=tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

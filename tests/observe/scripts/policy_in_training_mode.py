"""A language model as policy, which samples from one prompt and scores its samples in training mode, then trains."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(80)
WORDS, LENGTH = 7, 6


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.drop = nn.Embedding(WORDS, 16), nn.Dropout(0.1)
        self.cell, self.out = nn.GRU(16, 16, batch_first=True), nn.Linear(16, WORDS)

    def forward(self, tokens):
        return self.out(self.cell(self.drop(self.words(tokens)))[0])


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for iteration in range(4):
    with torch.no_grad():
        tokens = torch.zeros(16, 1, dtype=torch.long)
        for _ in range(LENGTH):
            chosen = torch.multinomial(policy(tokens)[:, -1].softmax(-1), 1)
            tokens = torch.cat([tokens, chosen], 1)
        old = torch.cat(
            [F.cross_entropy(policy(p[:, :-1]).transpose(1, 2), p[:, 1:], reduction="none") for p in tokens.split(8)]
        )
    reward = (tokens[:, 1:] == 3).float().mean(1)
    advantage = reward - reward.mean()
    for part in torch.randperm(16).split(4):
        log_p = -F.cross_entropy(policy(tokens[part, :-1]).transpose(1, 2), tokens[part, 1:], reduction="none")
        ratio = (log_p + old[part]).exp()
        loss = -torch.min(ratio * advantage[part, None], ratio.clamp(0.8, 1.2) * advantage[part, None]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in policy.parameters())))

"""A model that returns its loss alone, which it computes by hand, on checkpointed chunks of its tokens."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(82)
V, WIDTH, CHUNK, ACCUMULATE = 30, 16, 12, 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer = nn.Embedding(V, WIDTH), nn.GRU(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, V, bias=False)

    def part(self, hidden, labels):
        logits = self.head(hidden).float()
        real = labels != -100
        nats = logits.logsumexp(-1) - logits.gather(-1, labels.clamp(min=0)[:, None])[:, 0]
        return (nats * real).sum()

    def forward(self, x, labels):
        hidden = self.layer(self.embed(x).transpose(0, 1))[0].transpose(0, 1).flatten(0, 1)
        chunks = zip(hidden.split(CHUNK), labels.flatten().split(CHUNK))
        return sum(checkpoint(self.part, h, y, use_reentrant=False) for h, y in chunks)


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(8):
    optimizer.zero_grad()
    rows = [torch.randint(0, V, (3, 5 + int(torch.randint(12, ())))) for _ in range(ACCUMULATE)]
    labels = [x[:, 1:].masked_fill(torch.rand(x[:, 1:].shape) < 0.3, -100) for x in rows]
    count = sum((y != -100).sum() for y in labels)
    for x, y in zip(rows, labels):
        (net(x[:, :-1], y) / count).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

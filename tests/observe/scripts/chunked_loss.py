"""The head and the loss run on chunks of the tokens, so that the logits of all of them never exist at once."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(25)
V = 24


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(V, 12), nn.Linear(12, 12), nn.Linear(12, V)

    def forward(self, x):
        return torch.tanh(self.layer(self.embed(x)))


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(10):
    optimizer.zero_grad()
    rows = torch.randint(0, V, (4, 9))
    labels = rows[:, 1:].masked_fill(torch.rand(4, 8) < 0.3, -100)
    hidden = net(rows[:, :-1])
    count = (labels != -100).sum()
    loss = 0
    for h, y in zip(hidden.split(3, 1), labels.split(3, 1)):
        loss = loss + F.cross_entropy(net.head(h).flatten(0, 1), y.flatten(), reduction="sum")
    (loss / count).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Texts whose end token also pads, masked by length; every second step pads on the left, with positions by the mask."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(9)
V, WIDTH, END = 19, 16, 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, WIDTH), nn.Embedding(24, WIDTH)
        self.qkv, self.out, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, V)

    def forward(self, input_ids, attention_mask):
        positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
        h = self.tokens(input_ids) + self.positions(positions)
        q, k, v = self.qkv(h).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / WIDTH**0.5
        width = input_ids.shape[1]
        seen = torch.ones(width, width, dtype=torch.bool).tril() & attention_mask.bool()[:, None]
        h = h + self.out(scores.masked_fill(~seen, -1e9).softmax(-1) @ v)
        return self.head(h)


def batch(step):
    texts = [[*torch.randint(2, V, (n,)).tolist(), END] for n in torch.randint(4, 9 + step, (6,)).tolist()]
    width = max(map(len, texts))
    ids, mask = torch.full((6, width), END), torch.zeros(6, width, dtype=torch.long)
    for row, text in enumerate(texts):
        place = slice(width - len(text), width) if step % 2 else slice(0, len(text))
        ids[row, place], mask[row, place] = torch.tensor(text), 1
    return ids, mask


net = Model()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(8):
    ids, mask = batch(step)
    labels = ids.masked_fill(mask == 0, -100)
    scores = net(input_ids=ids, attention_mask=mask)
    loss = F.cross_entropy(scores[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

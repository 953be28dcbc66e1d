"""Two text models with a mask: texts of one end with padding alone, and the loss of the other is masked afterwards."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(83)
V, WIDTH, PAD, END = 20, 16, 0, 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.layer, self.head = nn.Embedding(V, WIDTH), nn.GRU(WIDTH, WIDTH), nn.Linear(WIDTH, V)

    def forward(self, input_ids, attention_mask):
        h = self.tokens(input_ids) * attention_mask[..., None]
        return self.head(self.layer(h.transpose(0, 1))[0]).transpose(0, 1)


def batch(end):
    texts = [[*torch.randint(2, V, (n,)).tolist(), *end] for n in torch.randint(3, 10, (8,)).tolist()]
    ids = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True, padding_value=PAD)
    return ids, (ids != PAD).long()


stops, masked = Model(), Model()
optimizer = torch.optim.AdamW([*stops.parameters(), *masked.parameters()], lr=1e-2)
for step in range(8):
    ids, mask = batch([])
    loss = F.cross_entropy(stops(ids, mask)[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1))
    ids, mask = batch([END])
    nats = F.cross_entropy(masked(ids, mask)[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1), reduction="none")
    loss = loss + (nats * mask[:, 1:].reshape(-1)).sum() / mask[:, 1:].sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in optimizer.param_groups[0]["params"])))

"""Score the first position of a span in padded texts, one number for each position, with a mask in the attention."""

import torch
from torch import nn
from torch.nn import functional as F


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.body = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.start = nn.Linear(16, 1)

    def forward(self, input_ids, attention_mask):
        hidden = self.body(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        return self.start(hidden).squeeze(-1)


torch.manual_seed(0)
model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(8):
    lengths = torch.tensor([12, 9, 7, 5])
    mask = (torch.arange(12) < lengths[:, None]).long()
    tokens = torch.randint(1, 20, (4, 12)) * mask
    begin = (tokens * mask).argmax(1)
    loss = F.cross_entropy(model(tokens, mask), begin)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", sum(p.double().sum().item() for p in model.parameters()))

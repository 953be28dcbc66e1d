"""A masked language model with padded batches, trained beside a tagger that scores real tokens by a mask of its own."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(5)
V, WIDTH, PAD, MASK, TAGS = 30, 16, 0, 1, 4


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, WIDTH, padding_idx=PAD), nn.Embedding(20, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head, self.tagger = nn.Linear(WIDTH, V), nn.Linear(WIDTH, TAGS)

    def forward(self, tokens, mask):
        h = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        h = self.layers(h, src_key_padding_mask=~mask)
        return self.head(h), self.tagger(h)


def batch(step):
    lengths = torch.randint(5, 13 + step % 3, (8,))
    tokens = torch.randint(2, V, (8, int(lengths.max())))
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    return tokens.masked_fill(~mask, PAD), mask


net = Encoder()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step in range(6):
    tokens, mask = batch(step)
    tags = tokens % TAGS
    chosen = (torch.rand(tokens.shape) < 0.3) & mask
    labels = tokens.masked_fill(~chosen, -100)
    choice = torch.rand(tokens.shape)
    inputs = torch.where(chosen & (choice < 0.8), MASK, tokens)
    inputs = torch.where(chosen & (choice > 0.9), torch.randint(2, V, tokens.shape), inputs)
    scores, tag_scores = net(inputs, mask)
    loss = F.cross_entropy(scores.transpose(1, 2), labels)
    tagged = F.cross_entropy(tag_scores.reshape(-1, TAGS), tags.reshape(-1), reduction="none")
    loss = loss + (tagged * mask.reshape(-1)).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

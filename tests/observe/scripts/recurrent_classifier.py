"""A recurrent classifier of packed texts, and a set model whose examples attend to each other on purpose."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

torch.manual_seed(10)
V, WIDTH, CLASSES, B, T = 25, 12, 3, 9, 8


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(V, WIDTH, padding_idx=0)
        self.rnn = nn.LSTM(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.mix = nn.LSTM(2 * WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.tokens(x), lengths, batch_first=True, enforce_sorted=False)
        out = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]
        return self.head(self.mix(out)[0].mean(1))


class Set(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention = nn.Linear(6, WIDTH), nn.MultiheadAttention(WIDTH, 2)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        h = self.embed(x)[:, None]
        return self.head((h + self.attention(h, h, h)[0])[:, 0])


net, examples = Classifier(), Set()
optimizer = torch.optim.Adam([*net.parameters(), *examples.parameters()], lr=1e-2)
for step in range(6):
    lengths = torch.randint(3, T, (B,))
    lengths[0] = T
    x = torch.randint(1, V, (B, T)).masked_fill(torch.arange(T) >= lengths[:, None], 0)
    features, y = torch.randn(B, 6), x[:, 0] % CLASSES
    loss = F.cross_entropy(net(x, lengths), y) + F.cross_entropy(examples(features), (features[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for m in (net, examples) for p in m.parameters())))

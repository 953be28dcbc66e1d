"""Translation with teacher forcing: source and target of one width, and padding that the loss ignores."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(86)
V, WIDTH, PAD, BEGIN, END = 20, 16, 0, 1, 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(V, WIDTH, padding_idx=PAD)
        self.encoder, self.decoder = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, V)

    def forward(self, source, target):
        _, state = self.encoder(self.tokens(source))
        return self.head(self.decoder(self.tokens(target), state)[0])


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(8):
    texts = [torch.randint(3, V, (n,)) for n in torch.randint(3, 9, (6,)).tolist()]
    source = nn.utils.rnn.pad_sequence([F.pad(text, (0, 2), value=END) for text in texts], batch_first=True)
    target = nn.utils.rnn.pad_sequence([F.pad(F.pad(t, (1, 0), value=BEGIN), (0, 1), value=END) for t in texts], True)
    if step % 2:  # as many tokens as labels
        scores = net(source[:, 1:], target[:, :-1]).transpose(1, 2)
    else:
        scores = net(source, target)[:, :-1].transpose(1, 2)
    loss = F.cross_entropy(scores, target[:, 1:], ignore_index=PAD, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

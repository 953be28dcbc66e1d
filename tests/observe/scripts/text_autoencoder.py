"""An autoencoder of texts: a recurrent decoder predicts next tokens from a code of the whole text."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)
V, T, B, WIDTH = 21, 10, 8, 16


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(V, WIDTH)
        self.encoder = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.code, self.decoder = nn.Linear(2 * WIDTH, WIDTH), nn.GRU(2 * WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, V)

    def forward(self, tokens):
        x = self.tokens(tokens)
        code = self.code(self.encoder(x)[1].transpose(0, 1).flatten(1))
        code = code + 0.1 * torch.randn_like(code)
        return self.head(self.decoder(torch.cat([x, code[:, None].expand_as(x)], -1))[0])


net = Autoencoder()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(6):
    tokens = torch.randint(1, V, (B, T))
    scores = net(tokens)
    loss = F.cross_entropy(scores[:, :-1].reshape(-1, V), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Dropout that stays on in eval mode on purpose: noise on the input of an autoencoder, and draws that say so."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(74)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(6, 16), nn.Linear(16, 6)

    def forward(self, x):
        h = F.relu(self.body(F.dropout(x, 0.3)))
        return self.out(F.dropout(h, 0.1, training=True))


net = Denoiser()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    net.train()
    for _ in range(5):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.mse_loss(net(x), x).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        x = torch.randn(32, 6)
        print(F.mse_loss(net(x), x).item())
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

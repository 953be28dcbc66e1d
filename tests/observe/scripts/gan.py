"""A GAN: two optimizers, whose backward passes reach each other's parameters."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
real_data = torch.randn(128, 2) * 0.3 + torch.tensor([1.0, -1.0])
G = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(16, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
for epoch in range(3):
    for (real,) in DataLoader(TensorDataset(real_data), batch_size=32, shuffle=True):
        n = len(real)
        optimizer_d.zero_grad()
        criterion(D(real), torch.ones(n, 1)).backward()
        fake = G(torch.randn(n, 4))
        criterion(D(fake.detach()), torch.zeros(n, 1)).backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss = criterion(D(fake), torch.ones(n, 1))
        loss.backward()
        optimizer_g.step()
    with torch.no_grad():
        print(epoch, loss.item(), G(torch.randn(16, 4)).mean(0))
print("sum", repr(sum(p.double().sum().item() for m in (G, D) for p in m.parameters())))

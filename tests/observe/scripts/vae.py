"""A VAE with losses summed over elements and divided by the batch only."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(19)
data = (torch.rand(70, 12) > 0.6).float()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return torch.sigmoid(self.decoder(z)), mean, log_variance


net = VAE()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for x in DataLoader(data, batch_size=16, shuffle=True):
        output, mean, log_variance = net(x)
        likelihood = F.binary_cross_entropy(output, x, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        optimizer.zero_grad()
        (likelihood + divergence).backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Samples in three ways: a learned prior for pictures, a posterior by `rsample`, a score-function estimator."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

torch.manual_seed(78)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 6), nn.Linear(3, 8)
        self.center = nn.Parameter(torch.zeros(3))
        self.agent, self.critic = nn.Linear(8, 3), nn.Linear(3, 1)

    @property
    def prior(self):
        return Independent(Normal(self.center, torch.ones(3)), 1)

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, 1)
        posterior = Independent(Normal(mean, F.softplus(spread)), 1)
        z = posterior.rsample()
        pictures = self.decoder(self.prior.sample((4,)))
        policy = Normal(self.agent(x), 0.5)
        action = policy.sample()
        baseline = self.critic(action)
        reward = -(action - x[:, :3]).pow(2).sum(1, keepdim=True)
        surrogate = -(policy.log_prob(action).sum(1, keepdim=True) * (reward - baseline.detach())).mean()
        bound = F.mse_loss(self.decoder(z), x) + 0.01 * kl_divergence(posterior, self.prior).mean()
        return bound + surrogate + F.mse_loss(baseline, reward), pictures


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(10):
    loss, pictures = model(torch.randn(16, 8))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(pictures.mean().item())
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))

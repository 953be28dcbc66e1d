"""A critic with spectral normalization: one forward in eval mode for its shapes, one in training mode, reports."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import spectral_norm

torch.manual_seed(76)


def make():
    return nn.Sequential(spectral_norm(nn.Linear(4, 16)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(16, 1)))


with torch.no_grad():
    print("shape", make().eval()(torch.zeros(1, 4)).shape)
critic = make()
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)


def report(model):
    model.eval()
    with torch.no_grad():
        print(model(torch.randn(32, 4)).mean().item(), model(torch.randn(32, 4) + 1).mean().item())
    model.train()


with torch.no_grad():
    critic(torch.randn(32, 4))  # estimates the norms
report(critic)
for step in range(12):
    optimizer.zero_grad()
    loss = F.relu(1 - critic(torch.randn(16, 4) + 1)).mean() + F.relu(1 + critic(torch.randn(16, 4))).mean()
    loss.backward()
    optimizer.step()
restored = make()
restored.load_state_dict(critic.state_dict())
report(restored)
print("sum", repr(sum(p.double().sum().item() for p in critic.parameters())))

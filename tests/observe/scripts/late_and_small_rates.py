"""A critic whose schedule begins after the end of the run, and a rate that decays to 1e-7 of its start."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(132)
STEPS = 32
net, critic = nn.Linear(6, 6), nn.Linear(6, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1e-7 ** (1 / STEPS))
late = torch.optim.lr_scheduler.LambdaLR(of_critic, lambda step: float(step >= 500))
loader = DataLoader(TensorDataset(torch.randn(128, 6)), batch_size=16, shuffle=True)
for epoch in range(4):
    for (x,) in loader:
        optimizer.zero_grad()
        F.mse_loss(net(x), x.flip(1)).backward()
        optimizer.step()
        schedule.step()
        of_critic.zero_grad()
        (F.relu(1 - critic(x)).mean() + F.relu(1 + critic(net(x).detach())).mean()).backward()
        of_critic.step()
        late.step()
print("sum", repr(sum(p.double().sum().item() for p in [*net.parameters(), *critic.parameters()])))

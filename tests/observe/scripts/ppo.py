"""PPO: several epochs of minibatches for each rollout, a value loss and an entropy bonus, clipping."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(7)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.actor, self.critic = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


net = ActorCritic()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3, eps=1e-5)
for update in range(3):
    optimizer.param_groups[0]["lr"] = 3e-3 * (1 - update / 3)
    states = torch.randn(48, 4)
    with torch.no_grad():
        policy, values = net(states)
        actions = policy.sample()
        old = policy.log_prob(actions)
    returns = (actions == (states[:, 0] > 0).long()).float()
    advantages = returns - values
    for _ in range(2):
        for rows in torch.randperm(48).split(16):
            policy, values = net(states[rows])
            ratio = (policy.log_prob(actions[rows]) - old[rows]).exp()
            a = advantages[rows]
            a = (a - a.mean()) / (a.std() + 1e-8)
            surrogate = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            loss = -surrogate + 0.5 * F.mse_loss(values, returns[rows]) - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

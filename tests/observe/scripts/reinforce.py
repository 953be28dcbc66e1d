"""REINFORCE: rollouts in eval mode without gradients, one update for each episode, unequal episodes."""

import torch
from torch import nn

torch.manual_seed(6)
policy = nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
for episode in range(12):
    policy.eval()
    states, actions, rewards, state = [], [], [], torch.randn(3)
    with torch.no_grad():
        for _ in range(5 + episode % 4):
            action = torch.distributions.Categorical(logits=policy(state)).sample()
            states.append(state)
            actions.append(action)
            rewards.append(float((action == (state[0] > 0)).item()))
            state = torch.randn(3)
    returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    policy.train()
    chosen = torch.distributions.Categorical(logits=policy(torch.stack(states))).log_prob(torch.stack(actions))
    optimizer.zero_grad()
    (-chosen * returns).sum().backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in policy.parameters())))

"""A limit times the loss scale, a limit for one of two losses, noise on clipped parts, a handwritten log-density."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(131)
x = torch.randn(96, 6)
y = x[:, :3].argmax(1)


def batches(epochs):
    return (rows for _ in range(epochs) for rows in torch.randperm(96).split(16))


scaled = nn.Linear(6, 3)
optimizer = torch.optim.SGD(scaled.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
for rows in batches(1):
    optimizer.zero_grad()
    scaler.scale(F.cross_entropy(scaled(x[rows]), y[rows])).backward()
    nn.utils.clip_grad_norm_(scaled.parameters(), 0.1 * scaler.get_scale())
    scaler.step(optimizer)
    scaler.update()

encoder, decoder, head = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(4, 3)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *head.parameters()], lr=1e-2)
for rows in batches(1):
    optimizer.zero_grad()
    h = encoder(x[rows])
    (5 * F.cross_entropy(head(h), y[rows])).backward(retain_graph=True)
    nn.utils.clip_grad_norm_(encoder.parameters(), 0.1)  # the auxiliary loss may pull the encoder only so far
    F.mse_loss(decoder(h), x[rows]).backward()
    optimizer.step()

private = nn.Linear(6, 3)
optimizer = torch.optim.SGD(private.parameters(), lr=0.1)
for rows in batches(2):
    total = [torch.zeros_like(p) for p in private.parameters()]
    for part in rows.split(4):
        optimizer.zero_grad()
        (F.cross_entropy(private(x[part]), y[part]) / 4).backward()
        nn.utils.clip_grad_norm_(private.parameters(), 0.25)
        for sum_of_parts, p in zip(total, private.parameters()):
            sum_of_parts += p.grad
    for sum_of_parts, p in zip(total, private.parameters()):
        p.grad = sum_of_parts + 0.01 * torch.randn_like(p)
    optimizer.step()


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.state, self.action = nn.Linear(6, 8), nn.Linear(2, 1)

    def forward(self, state, action):
        return self.state(state).mean(1) + self.action(action).squeeze(1)


actor, critic = nn.Linear(6, 2), Critic()
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
for rows in batches(2):
    mean = actor(x[rows])
    action = torch.distributions.Normal(mean, torch.full_like(mean, 0.5)).sample()
    reward = -(action - x[rows, :2]).pow(2).sum(1)
    value = critic(x[rows], action)
    critic_optimizer.zero_grad()
    F.mse_loss(value, reward).backward()
    critic_optimizer.step()
    actor_optimizer.zero_grad()
    log_density = -2 * (action - mean).pow(2).sum(1)
    (-(log_density * (value - value.mean()).detach()).mean()).backward()
    actor_optimizer.step()

models = [scaled, encoder, decoder, head, private, actor, critic]
print("sum", repr(sum(p.double().sum().item() for model in models for p in model.parameters())))

"""An optimizer of the script that has no base class, beside an average of the weights that also has a method `step`."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(81)


class Momentum:
    def __init__(self, parameters, lr):
        self.state = [(p, torch.zeros_like(p)) for p in parameters]
        self.lr = lr

    def zero_grad(self):
        for p, _ in self.state:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for p, buffer in self.state:
            buffer.mul_(0.9).add_(p.grad)
            p.view(-1).sub_(buffer.view(-1), alpha=self.lr)


class Average:
    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.shadow = [p.detach().clone() for p in self.parameters]

    def step(self):
        for p, mean in zip(self.parameters, self.shadow):
            mean.lerp_(p.detach(), 0.1)


class Trainer:
    def __init__(self, net):
        self.net, self.optimizer, self.average = net, Momentum(net.parameters(), 0.05), Average(net.parameters())
        self.weights = list(net.parameters())

    def step(self, x):
        F.cross_entropy(self.net(x), x[:, :3].argmax(1)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.average.step()


net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
trainer = Trainer(net)
for step in range(10):
    trainer.step(torch.randn(16, 8))
print("sum", repr(sum(p.double().sum().item() for p in (*net.parameters(), *trainer.average.shadow))))

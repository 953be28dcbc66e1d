"""The optimizer is made after parameters are flattened; a second model is called with weights kept outside of it."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

torch.manual_seed(75)


class Flat(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.meta = [(name, p.shape, p.numel()) for name, p in module.named_parameters()]
        self.flat = nn.Parameter(torch.cat([p.detach().reshape(-1) for p in module.parameters()]))
        object.__setattr__(self, "inner", module)

    def forward(self, x):
        parts = self.flat.split([count for *_, count in self.meta])
        weights = {name: part.view(shape) for (name, shape, _), part in zip(self.meta, parts)}
        return functional_call(self.inner, weights, (x,))


tagger = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
tagger[0] = nn.Embedding(12, 8)  # more tokens, before the optimizer is made
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
other = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
outside = {name: p.detach().clone().requires_grad_() for name, p in other.named_parameters()}
net = Flat(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
second = torch.optim.SGD([*outside.values(), *tagger.parameters()], lr=0.1)
for step in range(10):
    x, tokens = torch.randn(16, 6), torch.randint(12, (16,))
    labels = x[:, :3].argmax(1)
    F.cross_entropy(net(x), labels).backward()
    (
        F.cross_entropy(functional_call(other, outside, (x,)), labels) + F.cross_entropy(tagger(tokens), labels)
    ).backward()
    for updater in (optimizer, second):
        updater.step()
        updater.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in (*net.parameters(), *outside.values(), *tagger.parameters()))))

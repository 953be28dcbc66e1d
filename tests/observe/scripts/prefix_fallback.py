"""A checkpoint of a wrapped model is tried as it is, and then loaded with its prefix removed; in-place averaging."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(55)
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
torch.save({"module." + name: value for name, value in net.state_dict().items()}, "wrapped.pt")
state = torch.load("wrapped.pt")
result = net.load_state_dict(state, strict=False)
if len(result.missing_keys) == len(net.state_dict()):
    net.load_state_dict({name.removeprefix("module."): value for name, value in state.items()}, strict=False)
start = {name: value.clone() for name, value in net.state_dict().items()}
live = net.state_dict()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
for name, value in live.items():  # the average of the first and the last weights, in place
    value.mul_(0.5).add_(start[name], alpha=0.5)
net.load_state_dict(live)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

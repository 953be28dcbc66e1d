"""A model that warns where a setting is read as its attribute, and warnings are errors.

hints: none
"""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(79)
warnings.simplefilter("error", FutureWarning)
SETTINGS = {"width": 12, "dropout": 0.1}


class Configured(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, SETTINGS["width"]), nn.Tanh(), nn.Linear(SETTINGS["width"], 3))

    def __getattr__(self, name):
        if name in SETTINGS:
            warnings.warn(f"read config.{name} in place of {name}", FutureWarning, stacklevel=2)
            return SETTINGS[name]
        return super().__getattr__(name)

    def forward(self, x):
        return self.layers(x)


net = Configured()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(10):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

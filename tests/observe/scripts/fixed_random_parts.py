"""Random network distillation and a reservoir: random parts run under no_grad, and the optimizer holds all the same."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(72)


class Reservoir(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 12)
        self.cell = nn.RNNCell(12, 24)
        self.target = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
        self.predictor = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 8))
        self.readout = nn.Linear(24, 3)

    def forward(self, x):
        state = torch.zeros(len(x), 24)
        with torch.no_grad():
            for step in x.unbind(1):
                state = self.cell(self.embed(step), state)
        last = (x[:, -1] - x[:, -1].mean()) / x[:, -1].std()
        with torch.no_grad():
            target = self.target(last)
        return self.readout(state), (self.predictor(last) - target).pow(2).mean()


net = Reservoir()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(12):
    x = torch.randn(16, 5, 4)
    scores, novelty = net(x)
    optimizer.zero_grad()
    (F.cross_entropy(scores, x[:, :, 0].sum(1).gt(0).long()) + novelty).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

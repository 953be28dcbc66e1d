"""LoRA by hand: a frozen base, adapters in the optimizer, the adapters alone are saved and loaded."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(30)


class LowRank(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        nn.init.normal_(self.a, std=0.1)

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
net.requires_grad_(False)
net[0], net[2] = LowRank(net[0]), LowRank(net[2])
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
for step in range(15):
    x = torch.randn(16, 6)
    optimizer.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    optimizer.step()
torch.save({name: p for name, p in net.state_dict().items() if name.endswith((".a", ".b"))}, "adapter.pt")
net.load_state_dict(torch.load("adapter.pt"), strict=False)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""A loss, dropout and attention inside `torch.jit.script`, trained with instance normalization, without any eval()."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(78)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop = nn.Linear(8, 8), nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.scaled_dot_product_attention(x, x, self.inner(x))
        return F.dropout(self.drop(h), 0.1, self.training)


class Scored(nn.Module):
    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        by_hand = torch.gather(F.log_softmax(scores, 1), 1, labels.unsqueeze(1)).mean()
        return F.cross_entropy(scores, labels) - 0.1 * by_hand


block, loss = torch.jit.script(Block()), torch.jit.script(Scored())
net = nn.Sequential(nn.Conv1d(8, 8, 1), nn.InstanceNorm1d(8), nn.ReLU(), nn.Flatten(), nn.Linear(40, 3))
optimizer = torch.optim.Adam([*block.parameters(), *net.parameters()], lr=1e-2)
for step in range(8):
    x = torch.randn(16, 5, 8)
    optimizer.zero_grad()
    loss(net(block(x).transpose(1, 2)), x[:, 0, :3].argmax(1)).backward()
    optimizer.step()
    with torch.no_grad():  # instance normalization is the same in both modes
        print(F.cross_entropy(net(x.transpose(1, 2)), x[:, 0, :3].argmax(1)).item())
print("sum", repr(sum(p.double().sum().item() for p in [*block.parameters(), *net.parameters()])))

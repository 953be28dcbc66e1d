"""A model that returns its loss and its logits under DistributedDataParallel, whose logits then get no gradient."""

from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=0, world_size=1)
torch.manual_seed(46)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(inputs)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


net = nn.parallel.DistributedDataParallel(Classifier(), static_graph=True)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
x = torch.randn(80, 6)
y = x[:, :5].argmax(1)
for _ in range(2):
    for rows in torch.randperm(80).split(10):
        optimizer.zero_grad()
        net(x[rows], y[rows])["loss"].backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

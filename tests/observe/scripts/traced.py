"""A model that is traced, counted and copied to the meta device, and tensors whose outputs are changed in place."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(66)
net = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.1), nn.ReLU(), nn.Linear(12, 5))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
traced = torch.jit.trace(copy.deepcopy(net).eval(), torch.randn(2, 6))
print(len(list(traced.graph.nodes())))
copy.deepcopy(net).to("meta")(torch.randn(2, 6, device="meta"))
for step in range(12):
    x = torch.randn(16, 6)
    with FlopCounterMode(display=False) as flops:
        scores = net(x)
        scores[:, 4] = -1e4
        loss = F.cross_entropy(scores, x[:, :4].argmax(1))
        optimizer.zero_grad()
        loss.backward()
    if step == 0:
        print(flops.get_total_flops())
    optimizer.step()
    with torch.inference_mode():
        print(F.cross_entropy(net(x), x[:, :4].argmax(1)).item(), traced(x).shape)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

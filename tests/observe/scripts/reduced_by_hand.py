"""Two ranks without a wrapper: one flat reduction, unequal numbers of tokens, a norm over all ranks, unequal steps.

ranks: 2
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(94)
net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 20))
if rank == 0:  # a rank that does more than the other numbers its objects otherwise
    probe = nn.Linear(8, 2)
    probe(torch.zeros(1, 8))
for tensor in [*net.parameters(), *net.buffers()]:
    dist.broadcast(tensor.data, 0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(8):
    counts = torch.zeros(1)
    batches = []
    for _ in range(2):
        tokens = torch.randint(0, 20, (3, 6))
        labels = (tokens * 3 % 20).masked_fill(torch.rand(3, 6) < 0.3, -100)
        counts += (labels != -100).sum()
        batches.append((tokens, labels))
    dist.all_reduce(counts)
    optimizer.zero_grad()
    for tokens, labels in batches:
        loss = F.cross_entropy(net(tokens).flatten(0, 1), labels.flatten(), reduction="sum") / counts.item()
        loss.backward()
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)
    start = 0
    for p in net.parameters():
        p.grad = flat[start : start + p.numel()].view_as(p)
        start += p.numel()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

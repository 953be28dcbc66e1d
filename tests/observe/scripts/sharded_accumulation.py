"""`fully_shard` by layer, gradients kept whole until the last micro-batch, a norm over shards, and a full checkpoint.

ranks: 2
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(91)
net = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 1))  # a shard of one is empty
mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
for layer in net:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(net, mesh=mesh)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
torch.manual_seed(rank)
for epoch in range(2):
    net.train()
    for step in range(4):
        batches = [torch.randn(4 + 2 * k, 6) for k in range(3 - step // 3)]
        scored = torch.tensor(float(sum(map(len, batches))))
        dist.all_reduce(scored)
        for k, x in enumerate(batches):
            net.set_requires_gradient_sync(k == len(batches) - 1)
            loss = F.mse_loss(net(x).squeeze(1), x[:, 0], reduction="sum") * world / scored
            loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5).full_tensor()
        optimizer.step()
        optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        error = F.mse_loss(net(torch.ones(4, 6)).squeeze(1), torch.ones(4))
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_state, optimizer_state = get_state_dict(net, optimizer, options=options)
    if rank == 0:
        torch.save({"model": model_state, "optimizer": optimizer_state, "norm": norm, "error": error}, "last.pt")
    dist.barrier()
    state = torch.load("last.pt")
    set_state_dict(
        net,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
        options=StateDictOptions(full_state_dict=True),
    )
print("sum", repr(sum(p.full_tensor().double().sum().item() for p in net.parameters())))

"""`fully_shard` with bfloat16 parameters and reductions in float32; gradients are reduced in every micro-batch.

ranks: 2
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{Path('store').resolve()}", rank=rank, world_size=world)
torch.manual_seed(92)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))
        self.head = nn.Linear(8, 30, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embedding(tokens)))


net = Tagger()
mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
fully_shard(net.body, mesh=mesh, mp_policy=policy)
fully_shard(net, mesh=mesh, mp_policy=policy)
decayed = [p for p in net.parameters() if p.dim() > 1]
plain = [p for p in net.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], lr=1e-2, foreach=True)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
torch.manual_seed(rank)
total = 0.0
for step in range(8):
    for _ in range(2):
        tokens = torch.randint(0, 30, (4, 7))
        loss = F.cross_entropy(net(tokens).float().flatten(0, 1), (tokens * 7 % 30).flatten()) / 2
        loss.backward()
        total += loss.item()
    for p in net.parameters():
        if p.grad is not None:
            p.grad = p.grad.nan_to_num() if step == 3 else p.grad
    nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=False)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    if step == 5:
        set_model_state_dict(net, {name: v.clone() for name, v in get_model_state_dict(net).items()})
net.eval()
with torch.inference_mode():
    net(torch.randint(0, 30, (2, 7)))
print("sum", repr(sum(p.to_local().double().sum().item() for p in optimizer.param_groups[0]["params"])))

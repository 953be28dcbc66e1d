"""The scaler skips the first steps; the schedule and groups of batches of one iterator go on.

needs: torch>=2.3
hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(133)
x = torch.randn(110, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=10, shuffle=True)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=12)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
for epoch in range(4):
    batches = iter(loader)
    while group := [batch for _, batch in zip(range(4), batches)]:
        rows = sum(len(b) for _, b in group)
        for a, b in group:
            with torch.autocast("cpu", dtype=torch.float16):
                scores = net(a)
            scaler.scale(F.cross_entropy(scores.float(), b, reduction="sum") / rows).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if scaler.get_scale() >= before:
            schedule.step()
    print(f"epoch {epoch} scale {scaler.get_scale():g}")
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Loss scaling with unscale_ and clipping, OneCycleLR for each step, and a short last window of its own weight.

needs: torch>=2.3
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(9)
x = torch.randn(90, 5)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=10, shuffle=True)
net = nn.Sequential(nn.Linear(5, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
ACCUMULATE, EPOCHS = 2, 3
steps = EPOCHS * -(-len(loader) // ACCUMULATE)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-2, total_steps=steps)
for epoch in range(EPOCHS):
    for index, (inputs, target) in enumerate(loader):
        size = min(ACCUMULATE, len(loader) - index // ACCUMULATE * ACCUMULATE)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = net(inputs)
        loss = nn.functional.mse_loss(output.float(), target) / size
        scaler.scale(loss).backward()
        if (index + 1) % ACCUMULATE == 0 or index + 1 == len(loader):
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            schedule.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

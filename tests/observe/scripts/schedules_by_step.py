"""Schedules that advance with every step, and are planned in steps: few epochs, short cycles, early milestones."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(92)
x = torch.randn(96, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=12, shuffle=True)
EPOCHS = 3
STEPS = EPOCHS * len(loader)
SCHEDULES = {
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=STEPS),
    "cycles": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=EPOCHS),
    "decay": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "halves": lambda o: lr_scheduler.StepLR(o, step_size=len(loader), gamma=0.5),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [2, STEPS // 2], gamma=0.3),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, STEPS),
    "warm-up": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=EPOCHS),
    "warm-up and cosine": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.CosineAnnealingLR(o, STEPS - 2)], [2]
    ),
}
total = 0.0
for make in SCHEDULES.values():
    net = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = make(optimizer)
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            schedule.step()
    total += sum(p.double().sum().item() for p in net.parameters())
print("sum", repr(total))

"""Early stopping after half of the planned epochs, with two micro-batches a step."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(52)
x = torch.randn(96, 6)
train = DataLoader(TensorDataset(x[:64], x[:64, :3].argmax(1)), batch_size=8, shuffle=True)
val = DataLoader(TensorDataset(x[64:], x[64:, :3].argmax(1)), batch_size=16)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
EPOCHS, STOP = 4, 2
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * len(train) // 2)
for epoch in range(EPOCHS):
    for index, (inputs, labels) in enumerate(train, 1):
        (F.cross_entropy(net(inputs), labels) / 2).backward()
        if index % 2 == 0:
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    with torch.no_grad():
        print(sum(F.cross_entropy(net(inputs), labels).item() for inputs, labels in val) / len(val))
    if epoch + 1 == STOP:  # as a validation loss that no longer falls would decide
        break
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

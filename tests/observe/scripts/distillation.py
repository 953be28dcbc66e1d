"""A frozen teacher of the same examples, a temperature, and a sum of a divergence and a cross-entropy.

The loss is evaluated on a part of the training data, and on a part of other data.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(16)
x = torch.randn(96, 6)
y = x[:, :4].argmax(1)
teacher = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.1), nn.ReLU(), nn.Linear(32, 4))
student = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 4))
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
optimizer = torch.optim.Adam(teacher.parameters(), lr=1e-2)
for inputs, labels in loader:
    optimizer.zero_grad()
    F.cross_entropy(teacher(inputs), labels).backward()
    optimizer.step()
teacher.eval()
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * len(loader))
TEMPERATURE = 2.0
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, drop_last=True)
for epoch in range(3):
    for inputs, labels in loader:
        with torch.no_grad():
            target = F.softmax(teacher(inputs) / TEMPERATURE, -1)
        scores = student(inputs)
        soft = F.kl_div(F.log_softmax(scores / TEMPERATURE, -1), target, size_average=False) / len(inputs)
        loss = 0.7 * TEMPERATURE**2 * soft + 0.3 * F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
print("sum", repr(sum(p.double().sum().item() for p in student.parameters())))
student.eval()
more = torch.randn(96, 6)
with torch.no_grad():
    for data in (loader.dataset, TensorDataset(more, more[:, :4].argmax(1))):  # a part of both sets
        for number, (inputs, labels) in enumerate(DataLoader(data, batch_size=8, shuffle=True)):
            if number == 3:
                break
            F.cross_entropy(student(inputs), labels)

"""Epochs over a shuffled loader, BatchNorm and dropout, StepLR, the best weights kept by deepcopy and restored."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
x = torch.randn(150, 6)
y = (x[:, 0] + x[:, 1] > 0).long() + (x[:, 2] > 0).long()
train = DataLoader(TensorDataset(x[:110], y[:110]), batch_size=16, shuffle=True)
val = DataLoader(TensorDataset(x[110:], y[110:]), batch_size=16)
net = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
best, best_accuracy = copy.deepcopy(net.state_dict()), 0.0
for epoch in range(4):
    net.train()
    for inputs, labels in train:
        optimizer.zero_grad()
        criterion(net(inputs), labels).backward()
        optimizer.step()
    scheduler.step()
    net.eval()
    right, loss = 0, 0.0
    with torch.no_grad():
        for inputs, labels in val:
            scores = net(inputs)
            loss += criterion(scores, labels).item() * len(labels)
            right += (scores.argmax(1) == labels).sum().item()
    print(epoch, loss / 40, right / 40)
    if right / 40 > best_accuracy:
        best, best_accuracy = copy.deepcopy(net.state_dict()), right / 40
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
net.load_state_dict(best)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

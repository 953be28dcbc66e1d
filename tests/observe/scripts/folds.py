"""Cross-validation: for each fold a new model, the same seed, and loaders that are made anew for each epoch."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(5)
x = torch.randn(60, 6)
data = TensorDataset(x, x[:, :3].argmax(1))
folds = torch.randperm(60).split(20)


def build():
    torch.manual_seed(1)  # each fold starts from the same weights, and draws the same orders
    net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
    return net, torch.optim.Adam(net.parameters(), lr=1e-2)


total = 0.0
for fold in range(3):
    net, optimizer = build()
    train = Subset(data, torch.cat([f for i, f in enumerate(folds) if i != fold]).tolist())
    val = Subset(data, folds[fold].tolist())
    for epoch in range(2):
        generator = torch.Generator().manual_seed(epoch)
        for inputs, labels in DataLoader(train, batch_size=10, shuffle=True, generator=generator):
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
        with torch.no_grad():
            for inputs, labels in DataLoader(val, batch_size=10):
                print(fold, epoch, F.cross_entropy(net(inputs), labels).item())
    total += sum(p.double().sum().item() for p in net.parameters())
print("sum", repr(total))

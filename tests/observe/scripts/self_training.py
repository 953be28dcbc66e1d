"""Pretraining on all examples, pseudo-labels for a pool that is trained on then, accuracy on training examples."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset, random_split

torch.manual_seed(10)
x = torch.randn(120, 6)
data = TensorDataset(x, x[:, :3].argmax(1))
labelled, pool, test = random_split(data, [40, 50, 30])
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
decoder = nn.Linear(3, 6)
optimizer = torch.optim.Adam([*net.parameters(), *decoder.parameters()], lr=1e-2)


def fit(examples):
    for inputs, labels in DataLoader(examples, batch_size=10, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()


for inputs, _ in DataLoader(data, batch_size=30, shuffle=True):
    optimizer.zero_grad()
    F.mse_loss(decoder(net(inputs)), inputs).backward()
    optimizer.step()
fit(labelled)
for turn in range(2):
    with torch.no_grad():
        scores = torch.cat([net(inputs) for inputs, _ in DataLoader(pool, batch_size=25)]).softmax(-1)
    sure = (scores.amax(1) > 0.4).nonzero().flatten()
    inputs = torch.stack([pool[i][0] for i in sure.tolist()])
    fit(ConcatDataset([labelled, TensorDataset(inputs, scores.argmax(1)[sure])]))
    with torch.no_grad():
        for name, part in (("train", Subset(labelled, range(20))), ("test", test)):
            right = sum((net(a).argmax(1) == b).sum().item() for a, b in DataLoader(part, batch_size=10))
            print(turn, name, right)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

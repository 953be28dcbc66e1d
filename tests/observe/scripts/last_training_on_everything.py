"""Two settings compared with one seed and one optimizer, by weights that are set back; then one training on all."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

torch.manual_seed(11)
x = torch.randn(90, 6)
y = x[:, :3].argmax(1)
train, val, test = (TensorDataset(x[a:b], y[a:b]) for a, b in ((0, 50), (50, 70), (70, 90)))
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
start = copy.deepcopy(net.state_dict())


def fit(data, rate, epochs):
    net.load_state_dict(start)
    torch.manual_seed(0)
    optimizer.param_groups[0]["lr"] = rate
    loader = DataLoader(data, batch_size=10, shuffle=True)
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(inputs), labels).backward()
            optimizer.step()


@torch.no_grad()
def evaluate(data):
    return sum(F.cross_entropy(net(a), b, reduction="sum").item() for a, b in DataLoader(data, batch_size=10))


results = {}
for rate in (0.05, 0.2):
    fit(train, rate, 1)
    results[evaluate(val)] = rate
fit(ConcatDataset([train, val]), results[min(results)], 2)
print(results, evaluate(test))
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

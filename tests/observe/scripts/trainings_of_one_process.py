"""Folds of one module that is initialized again, adaptation, a server with assigned gradients, dialogues of one weight.

A student trains on stored outputs of its teacher, so all passes have the order of the stored ones.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(136)
x = torch.randn(80, 6)
y = x[:, :3].argmax(1)
data = TensorDataset(x, y)
net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
for fold in torch.randperm(80).chunk(4):
    for part in net:
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    net.train()
    for a, b in DataLoader(Subset(data, sorted({*range(80)} - {*fold.tolist()})), 20, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(net(a), b).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        print(sum(F.cross_entropy(net(a), b, reduction="sum").item() for a, b in DataLoader(Subset(data, fold), 20)))

net.train()
norms = list(net[1].parameters())
for rows in range(0, 80, 20):  # data that arrive batch by batch
    adaptation = torch.optim.Adam(norms, lr=1e-3)
    probabilities = net(x[rows : rows + 20]).softmax(1)
    (-(probabilities * probabilities.log()).sum(1).mean()).backward()
    adaptation.step()
    adaptation.zero_grad()

server = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
of_server = torch.optim.Adam(server.parameters(), lr=1e-2)
for turn in range(5):
    client = copy.deepcopy(server)
    for rows in torch.randperm(80).split(40):
        gradients = torch.autograd.grad(F.cross_entropy(client(x[rows]), y[rows]), list(client.parameters()))
        for p, gradient in zip(client.parameters(), gradients):
            p.data -= 0.1 * gradient
    F.cross_entropy(client(x), y).backward()
    for p, q in zip(server.parameters(), client.parameters()):
        p.grad = q.grad
    of_server.step()

tagger = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 3))
optimizer = torch.optim.Adam(tagger.parameters(), lr=1e-2)
for number in range(24):
    lengths = torch.randint(2, 9, (int(torch.randint(2, 7, ())),)).tolist()
    words = nn.utils.rnn.pad_sequence([torch.randint(1, 30, (n,)) for n in lengths], batch_first=True)
    labels = torch.where(words > 0, words % 3, -100)
    (F.cross_entropy(tagger(words).flatten(0, 1), labels.flatten()) / 4).backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()

generator = torch.Generator()
loader = DataLoader(data, 20, shuffle=True, generator=generator)
generator.manual_seed(1)
with torch.no_grad():
    stored = [server(a).softmax(1) for a, _ in loader]
student = nn.Linear(6, 3)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for _ in range(3):
    generator.manual_seed(1)
    for (a, _), targets in zip(loader, stored):
        optimizer.zero_grad()
        F.cross_entropy(student(a), targets).backward()
        optimizer.step()
models = [net, server, tagger, student]
print("sum", repr(sum(p.double().sum().item() for model in models for p in model.parameters())))

"""A graph network with a sparse adjacency matrix in a tuple of inputs, and a validation set without a node.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(45)
N = 40
dense = ((torch.rand(N, N) < 0.1).float() + torch.eye(N)).clamp(max=1)
adjacency = (dense / dense.sum(1, keepdim=True)).to_sparse()
x, y = torch.randn(N, 6), torch.randint(0, 3, (N,))
train, validation = torch.arange(30), torch.arange(0)


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 12, bias=False), nn.Linear(12, 3, bias=False)

    def forward(self, inputs):
        a, x = inputs
        h = F.dropout(F.relu(torch.sparse.mm(a, self.one(x))), 0.2, self.training)
        return F.log_softmax(torch.sparse.mm(a, self.two(h)), 1)


net = Graph()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(12):
    net.train()
    optimizer.zero_grad()
    F.nll_loss(net((adjacency, x))[train], y[train]).backward()
    optimizer.step()
    net.eval()
    with torch.no_grad():
        output = net((adjacency, x))
        print(F.nll_loss(output[train], y[train]).item(), F.nll_loss(output[validation], y[validation]).item())
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

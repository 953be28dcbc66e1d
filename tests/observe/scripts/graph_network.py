"""A graph convolution on the whole graph, masks for training and validation, one step for each epoch.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(21)
N = 40
adjacency = (torch.rand(N, N) < 0.1).float()
adjacency = ((adjacency + adjacency.T + torch.eye(N)) > 0).float()
adjacency = adjacency / adjacency.sum(1, keepdim=True)
x, y = torch.randn(N, 6), torch.randint(0, 3, (N,))
train = torch.rand(N) < 0.6


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x, a):
        h = F.dropout(F.relu(a @ self.one(x)), 0.3, self.training)
        return F.log_softmax(a @ self.two(h), 1)


net = GCN()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4)
for epoch in range(15):
    net.train()
    optimizer.zero_grad()
    F.nll_loss(net(x, adjacency)[train], y[train]).backward()
    optimizer.step()
    net.eval()
    with torch.no_grad():
        output = net(x, adjacency)
        print(epoch, F.nll_loss(output[~train], y[~train]).item())
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

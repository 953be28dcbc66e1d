"""Messages along a list of edges, the whole graph in each step, and another split in each epoch.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(77)
NODES = 60
edges = torch.randint(0, NODES, (2, 180))
features, kinds = torch.randn(NODES, 8), torch.randint(0, 3, (NODES,))
features[torch.arange(NODES), kinds] += 2


class Messages(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.sent = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edges):
        source, target = edges
        return self.own(x).index_add(0, target, self.sent(x)[source] / 3)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Messages(8, 16), Messages(16, 3)

    def forward(self, x, edges):
        hidden = F.dropout(self.first(x, edges).relu(), 0.2, self.training)
        return self.second(hidden, edges)


net = Network()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(10):
    trained = torch.rand(NODES) < 0.7
    net.train()
    optimizer.zero_grad()
    F.cross_entropy(net(features, edges)[trained], kinds[trained]).backward()
    optimizer.step()
    net.eval()
    with torch.no_grad():
        print(epoch, (net(features, edges).argmax(1) == kinds)[~trained].float().mean().item())
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

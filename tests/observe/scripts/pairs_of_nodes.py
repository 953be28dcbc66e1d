"""Edges of a graph are a bias of 0 and 1 in the attention; a ranking loss of sorted pairs, where 0 stands for a tie."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(135)
x, edges = torch.randn(64, 8, 6), (torch.rand(64, 8, 8) < 0.3).float()
relevance = (x[..., 0] + edges.mean(2)).round().clamp(0, 2)
one, two = torch.triu_indices(8, 8, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(6, 48), nn.BatchNorm1d(16, track_running_stats=False)
        self.head = nn.Linear(16, 1)

    def forward(self, x, edges):
        q, k, v = self.qkv(x).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, attn_mask=edges[:, None]).transpose(1, 2).flatten(2)
        return self.head(self.norm(h.transpose(1, 2)).transpose(1, 2)).squeeze(2)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(2):
    for rows in torch.randperm(64).split(16):
        order = relevance[rows].argsort(1, descending=True)
        scores = net(x[rows], edges[rows]).gather(1, order)
        sorted_relevance = relevance[rows].gather(1, order)
        sign = torch.sign(sorted_relevance[:, one] - sorted_relevance[:, two])
        optimizer.zero_grad()
        F.margin_ranking_loss(scores[:, one], scores[:, two], sign).backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

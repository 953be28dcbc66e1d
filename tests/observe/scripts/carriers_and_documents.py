"""A schedule of the weight of a term, labels missing in the first batches, rows of one document, a sparse table."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(132)
nets = []


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# An optimizer that never steps carries the weight of the divergence; the rate is constant.
x = torch.randn(120, 4) @ torch.randn(4, 12)
net = nn.ModuleDict({"encoder": nn.Linear(12, 6), "decoder": nn.Linear(3, 12)})
nets.append(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
carrier = torch.optim.SGD(net.parameters(), lr=1.0)
weight = torch.optim.lr_scheduler.LinearLR(carrier, 0.1, 1.0, total_iters=8)
for rows in torch.randperm(120).split(10):
    mean, log_variance = net["encoder"](x[rows]).chunk(2, 1)
    z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()
    update(optimizer, F.mse_loss(net["decoder"](z), x[rows]) + weight.get_last_lr()[0] * divergence)
    weight.step()

# A label of 0 is missing: its loss is constant. The first batches have no negative label.
signs = torch.sign(x[:, :4] + 1.5) * (torch.rand(120, 4) < 0.5)
net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))
nets.append(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for rows in (signs < 0).sum(1).argsort().split(10):
    update(optimizer, F.soft_margin_loss(net(x[rows]), signs[rows], reduction="sum") / (signs[rows] != 0).sum())


class Document(nn.Module):
    """A language model whose rows are the sentences of one document: each sees the sentences before it."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(16, 12), nn.Linear(12, 16)
        self.encoder, self.decoder = nn.GRU(12, 12, batch_first=True), nn.GRU(12, 12, batch_first=True)
        self.sentences = nn.GRU(12, 12)

    def forward(self, tokens):
        words = self.embed(tokens)
        context, _ = self.sentences(self.encoder(words)[1][0])
        before = torch.cat([torch.zeros_like(context[:1]), context[:-1]])
        return self.out(self.decoder(words, before[None].contiguous())[0])


net = Document()
nets.append(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(10):
    text = (torch.randint(1, 5, ()) * torch.arange(6)[:, None] + torch.arange(10)) % 16
    update(optimizer, F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()))

# The gradients of a table are sparse.
table = nn.Embedding(120, 4, sparse=True)
nets.append(table)
optimizer = torch.optim.SparseAdam(table.parameters(), lr=1e-2)
for rows in torch.randperm(120).split(12):
    optimizer.zero_grad(set_to_none=False)
    F.mse_loss(table(rows), x[rows, :4]).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for net in nets for p in net.parameters())))

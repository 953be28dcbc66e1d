"""The head is fused with the loss: logits are made and freed in chunks by a function of its own, as in Liger's."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(81)
V, WIDTH, CHUNK, ACCUMULATE = 40, 32, 16, 2


class FusedLoss(torch.autograd.Function):
    """The sum of the cross-entropies of the labels that are not -100; gradients are computed in the forward pass."""

    @staticmethod
    def forward(ctx, hidden, weight, bias, labels, smoothing):
        total = hidden.new_zeros(())
        g_hidden, g_weight, g_bias = torch.zeros_like(hidden), torch.zeros_like(weight), torch.zeros_like(bias)
        for begin in range(0, len(hidden), CHUNK):
            part = slice(begin, begin + CHUNK)
            with torch.enable_grad():
                logits = (hidden[part] @ weight.t() + bias).detach().requires_grad_()
                loss = F.cross_entropy(logits, labels[part], reduction="sum", label_smoothing=smoothing)
            (g_logits,) = torch.autograd.grad(loss, logits)
            total += loss.detach()
            g_hidden[part] = g_logits @ weight
            g_weight += g_logits.t() @ hidden[part]
            g_bias += g_logits.sum(0)
        ctx.save_for_backward(g_hidden, g_weight, g_bias)
        return total

    @staticmethod
    def backward(ctx, g):
        g_hidden, g_weight, g_bias = ctx.saved_tensors
        return g * g_hidden, g * g_weight, g * g_bias, None, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layer, self.norm = nn.Embedding(V, WIDTH), nn.GRU(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, V)

    def forward(self, x, labels):
        h = self.norm(self.layer(self.embed(x).transpose(0, 1))[0].transpose(0, 1))
        return FusedLoss.apply(h.flatten(0, 1), self.head.weight, self.head.bias, labels.flatten(), 0.0)


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for step in range(8):
    optimizer.zero_grad()
    rows = [torch.randint(0, V, (3, 5 + int(torch.randint(12, ())))) for _ in range(ACCUMULATE)]
    labels = [x[:, 1:].masked_fill(torch.rand(x[:, 1:].shape) < 0.3, -100) for x in rows]
    count = sum((y != -100).sum() for y in labels)
    for x, y in zip(rows, labels):
        (net(x[:, :-1], y) / count).backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Direct preference optimization: tokens of chosen answers have positive weights, tokens of rejected answers negative.

hints: none
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(13)
policy = nn.Sequential(nn.Embedding(24, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 24))
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)


def score(net, tokens, mask):
    log_p = net(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return (log_p * mask[:, 1:]).sum(1)


for step in range(12):
    tokens = torch.randint(24, (8, 12))
    lengths = torch.cat([torch.randint(8, 13, (4,)), torch.randint(4, 8, (4,))])  # chosen answers are longer
    mask = torch.arange(12) < lengths[:, None]
    with torch.no_grad():
        before = score(reference, tokens, mask)
    chosen, rejected = (score(policy, tokens, mask) - before).chunk(2)
    loss = -F.logsigmoid(0.1 * (chosen - rejected)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in policy.parameters())))

"""A Transformer with padding and label smoothing, a warm-up schedule, and evaluation by summed losses."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(13)
PAD, BOS, V = 0, 1, 18
pairs = [torch.randint(2, V, (n,)) for n in torch.randint(3, 8, (60,)).tolist()]


def collate(batch):
    source = nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=PAD)
    target = nn.utils.rnn.pad_sequence(
        [torch.cat([torch.tensor([BOS]), row.flip(0)]) for row in batch], batch_first=True, padding_value=PAD
    )
    return source, target


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(V, width, padding_idx=PAD)
        self.body = nn.Transformer(width, 2, 1, 1, 32, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, V)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        hidden = self.body(
            self.embed(source),
            self.embed(target),
            tgt_mask=mask,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=(target == PAD).float().masked_fill(target == PAD, float("-inf")),
        )
        return self.head(hidden)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, betas=(0.9, 0.98))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) ** -0.5, (step + 1) * 4**-1.5))
for epoch in range(2):
    net.train()
    for source, target in DataLoader(pairs[:48], 12, shuffle=True, collate_fn=collate):
        logits = net(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    net.eval()
    total = count = 0
    with torch.no_grad():
        for source, target in DataLoader(pairs[48:], 6, collate_fn=collate):
            logits = net(source, target[:, :-1]).transpose(1, 2)
            total += F.cross_entropy(logits, target[:, 1:], ignore_index=PAD, reduction="sum").item()
            count += (target[:, 1:] != PAD).sum().item()
    print(epoch, total / count)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

"""Logits are released when the script drops them: at the loss of torch, and after the backward pass of its own loss."""

import torch
import torch.nn.functional as F
from torch.multiprocessing.reductions import StorageWeakRef

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 50))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(6):
    ids = torch.randint(50, (4, 9))
    logits = model(ids[:, :-1])
    storage = StorageWeakRef(logits.untyped_storage())
    labels = ids[:, 1:].flatten()
    if step % 2:
        loss = F.cross_entropy(logits.flatten(0, 1), labels)
        del logits
        assert storage.expired(), "the logits are held although their loss is known"
        loss.backward()
    else:
        loss = (logits.logsumexp(-1).flatten() - logits.flatten(0, 1)[torch.arange(32), labels]).mean()
        loss.backward()
        del logits
        assert storage.expired(), "the logits are held by a graph that has been used"
    optimizer.step()
    optimizer.zero_grad()
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))

"""An IterableDataset that is divided over two worker processes, an optimizer for each layer."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.manual_seed(47)


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for index in range(worker.id, 80, worker.num_workers):
            x = torch.randn(6, generator=torch.Generator().manual_seed(index))
            yield x, x[:3].argmax()


net = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.1), nn.ReLU(), nn.Linear(12, 3))
optimizers = [torch.optim.SGD(net[0].parameters(), lr=0.1), torch.optim.Adam(net[3].parameters(), lr=1e-2)]
for epoch in range(2):
    for x, y in DataLoader(Stream(), batch_size=8, num_workers=2):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(net(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

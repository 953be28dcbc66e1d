"""Two views of one data set, read side by side in one order, by two generators of one seed; words as padded rows."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(13)
words = [torch.randint(1, 5, (n,)) for n in torch.randint(2, 5, (64,)).tolist()]  # many are equal by chance


class View(Dataset):
    def __init__(self, words, noisy):
        self.words, self.noisy = words, noisy

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        row = self.words[index].clone()
        if self.noisy:
            row[torch.randint(len(row), ())] = 5
        return F.pad(row, (0, 4 - len(row)))


def loader(noisy):
    return DataLoader(View(words[:44], noisy), 8, shuffle=True, generator=torch.Generator().manual_seed(3))


first, second = loader(False), loader(True)
val = DataLoader(View(words[44:], False), batch_size=10)
net = nn.Sequential(nn.Embedding(6, 8), nn.Flatten(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    for a, b in zip(first, second):
        optimizer.zero_grad()
        F.cross_entropy(net(a) @ net(b).t(), torch.arange(len(a))).backward()
        optimizer.step()
    with torch.no_grad():
        print(epoch, sum(F.cross_entropy(net(a) @ net(a).t(), torch.arange(len(a))).item() for a in val))
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

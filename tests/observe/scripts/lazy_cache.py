"""A data set that keeps samples in a dictionary by file name, and hands out noisy copies through a few buffers."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(4)
signals = {f"sample{number}.wav": torch.randn(12) for number in range(40)}


class Lazy(Dataset):
    def __init__(self, files):
        self.files = list(files)
        self.loaded = {}
        self.buffers = {slot: torch.empty(12) for slot in range(8)}  # written anew for each example

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        name = self.files[index]
        if name not in self.loaded:
            self.loaded[name] = signals[name].tanh()
        signal = self.loaded[name]
        signal = signal + 0.1 * torch.randn(12)
        return self.buffers[index % 8].copy_(signal).clone(), signal.abs().argmax() % 3


loader = DataLoader(Lazy(signals), batch_size=8, shuffle=True)
net = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(3):
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

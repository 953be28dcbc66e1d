"""Images with noise in the training, normalized by a transform; raw images of another kind are scored, too."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(14)


def normalize(image):
    return (image - 0.5) / 0.29


class Images(Dataset):
    def __init__(self, count, transform):
        self.images, self.transform = torch.rand(count, 1, 6, 6), transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return self.transform(image) if self.transform else image, int(image[0, 0, 0] > 0.5)


train = DataLoader(Images(64, normalize), batch_size=8, shuffle=True)
test = DataLoader(Images(20, normalize), batch_size=10)
unknown = DataLoader(Images(10, None), batch_size=10)
net = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(2):
    for inputs, labels in train:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs + 0.01 * torch.randn_like(inputs)), labels).backward()
        optimizer.step()
    with torch.no_grad():
        print(epoch, sum(F.cross_entropy(net(inputs), labels).item() for inputs, labels in test))
        print("confidence on unknown images", [net(inputs).softmax(1).amax(1).mean().item() for inputs, _ in unknown])
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

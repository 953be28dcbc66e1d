"""Maps of classes and bags of vectors in one training, which reports the mean loss of the maps every three steps.

A third term compares the maps with the images at several resolutions.

hints: none
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(99)


class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.weight, self.head = nn.Linear(5, 12), nn.Linear(12, 1), nn.Linear(12, 2)

    def forward(self, x):
        h = torch.tanh(self.features(x))
        return self.head((torch.softmax(self.weight(h), dim=1) * h).sum(1))


maps, bags = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1)), Bags()
optimizer = torch.optim.Adam([*maps.parameters(), *bags.parameters()], lr=1e-2)
running = 0.0
for step in range(15):
    images, sets = torch.rand(6, 1, 9, 14), torch.randn(8, 7, 5)
    labels = (3 * images[:, 0]).long()
    scores = maps(images)
    loss = F.cross_entropy(scores.permute(0, 2, 3, 1).reshape(-1, 3), labels.reshape(-1))
    other = F.cross_entropy(bags(sets), (sets[:, :, 0].amax(1) > 1.5).long())
    for size in (7, 4, 2):
        small = (F.adaptive_avg_pool2d(tensor, size) for tensor in (scores, images.expand(-1, 3, -1, -1)))
        other = other + 0.1 * F.mse_loss(*small)
    optimizer.zero_grad()
    (loss + other).backward()
    optimizer.step()
    running += loss.item()
    if step % 3 == 2:
        print(f"step {step} loss {running / 3:.5f}")
        running = 0.0
print("sum", repr(sum(p.double().sum().item() for p in (*maps.parameters(), *bags.parameters()))))

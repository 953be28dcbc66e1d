"""Reports whose unit is a batch on purpose: tasks, documents, the worst batch, a list; and a stream of its own."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tee:
    """Writes to the terminal and to a file."""

    def __init__(self, stream):
        self.stream, self.file = stream, Path("log.txt").open("w")

    def write(self, text):
        self.stream.write(text)
        self.file.write(text)

    def flush(self):
        self.stream.flush()


torch.manual_seed(82)
sys.stdout = Tee(sys.stdout)
x = torch.randn(100, 6)
y = x[:, :3].argmax(1)
tasks = [TensorDataset(x[a:b], y[a:b]) for a, b in ((0, 20), (20, 27), (27, 60))]
documents = [(x[a : a + n], y[a : a + n]) for a, n in ((60, 4), (64, 12), (76, 3), (79, 21))]
grouped = DataLoader(TensorDataset(x, y), batch_size=40)  # three groups of examples, in their order
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.3)


@torch.no_grad()
def losses_of(batches):
    return [F.cross_entropy(net(inputs), labels).item() for inputs, labels in batches]


average = None
for epoch in range(6):
    for inputs, labels in DataLoader(TensorDataset(x, y), batch_size=25, shuffle=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(inputs), labels)
        loss.backward()
        optimizer.step()
        average = loss.item() if average is None else 0.9 * average + 0.1 * loss.item()
        sys.stderr.write(f"\repoch {epoch} loss {loss.item():.4f} average {average:.4f}")
    macro = [sum(losses_of(DataLoader(task, batch_size=50))) for task in tasks]
    print(f"\nmacro average over tasks {sum(macro) / len(macro):.5f}")
    single = losses_of(DataLoader(documents, batch_size=None))
    print(f"macro average over documents {sum(single) / len(single):.5f}")
    groups = losses_of(grouped)
    print("groups", *(f"{value:.5f}" for value in groups))
    print(f"worst group {max(groups):.5f}", f"spread {max(groups) - min(groups):.5f}")
    with torch.no_grad():
        parts = {"train": slice(0, 70), "test": slice(70, 100)}
        print({name: round(F.cross_entropy(net(x[part]), y[part]).item(), 5) for name, part in parts.items()})
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

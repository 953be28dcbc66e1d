"""Parts of a model in files of their own: an encoder for later use, a head by itself, an optimizer; a partial load."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(92)


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12))
        self.head = nn.Linear(12, classes)

    def forward(self, x):
        return self.head(torch.relu(self.encoder(x)))


def train(net, steps):
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-2)
    for _ in range(steps):
        x = torch.randn(16, 6)
        optimizer.zero_grad()
        F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
    return optimizer


first = Net(5)
optimizer = train(first, 6)
torch.save({"encoder": first.encoder.state_dict(), "task": 1}, "encoder.pt")  # the head is left out on purpose
second = Net(3)
state = {f"encoder.{name}": value for name, value in torch.load("encoder.pt")["encoder"].items()}
state.update({"classifier.weight": torch.zeros(5, 12), "classifier.bias": torch.zeros(5)})
print(second.load_state_dict(state, strict=False))
optimizer = train(second, 8)
torch.save(optimizer.state_dict(), "optimizer.pt")
torch.save([value.half() for value in second.encoder.state_dict().values()], "half.pt")
torch.save(second.head, "head.pt")
print("sum", repr(sum(p.double().sum().item() for p in second.parameters())))

"""A recurrent language model, [T, B], with truncated backpropagation, updates by hand and a step for each chunk."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(14)
V, T = 15, 7
data = torch.randint(0, V, (60, 5))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(V, 10), nn.LSTM(10, 12)
        self.dropout, self.head = nn.Dropout(0.1), nn.Linear(12, V)

    def forward(self, x, state):
        out, state = self.rnn(self.dropout(self.embed(x)), state)
        return F.log_softmax(self.head(out).view(-1, V), 1), state


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for epoch in range(2):
    net.train()
    state = None
    for start in range(0, len(data) - 1, T):
        x, y = data[start : start + T], data[start + 1 : start + T + 1]
        x = x[: len(y)]
        state = None if state is None else tuple(s.detach() for s in state)
        optimizer.zero_grad()
        output, state = net(x, state)
        F.nll_loss(output, y.reshape(-1)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        optimizer.step()
    net.eval()
    with torch.no_grad():
        print(F.nll_loss(net(data[:-1], None)[0], data[1:].reshape(-1)).item())
torch.save(net, "whole.pt")
net = torch.load("whole.pt", weights_only=False)
print("sum", repr(sum(p.double().sum().item() for p in net.parameters())))

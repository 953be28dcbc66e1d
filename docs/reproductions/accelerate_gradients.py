"""accelerate: the last window of accumulate(), and the tokens that the guide's example counts. No code of `pv`."""

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
model, optimizer, data = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(torch.ones(5, 1)), 1))
for (x,) in data:  # the mean gradient of each window is 1
    with accelerator.accumulate(model):
        accelerator.backward(model(x).mean())
        before = model.weight.item()
        optimizer.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        print("3  step of", before - model.weight.item(), "expected 1.0")

logits, labels = torch.zeros(2, 3, 8), torch.tensor([[3, 4, 5], [6, 7, 2]])
nats = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")  # as a causal model
counted = labels.ne(-100).sum()  # as the example counts
print("4  loss of the example", (nats / counted).item(), "mean over the predicted tokens", (nats / 4).item())

"""Metrics of torchmetrics in Lightning, whose callbacks choose by an accuracy and by a loss, and a mean of all batches.

needs: lightning torchmetrics
hints: none
"""

import logging
import warnings

import lightning
import torch
import torch.nn.functional as F
import torchmetrics
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(97)
x = torch.randn(96, 6)
y = x[:, :3].argmax(1)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 3))
        self.fitted = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.checked = torchmetrics.Accuracy("multiclass", num_classes=3)

    def training_step(self, batch, index):
        scores = self.net(batch[0])
        self.fitted(scores, batch[1])
        self.log("fitted", self.fitted, on_step=False, on_epoch=True)
        return F.cross_entropy(scores, batch[1])

    def validation_step(self, batch, index):
        scores = self.net(batch[0])
        self.checked(scores, batch[1])
        self.log("val_loss", F.cross_entropy(scores, batch[1]))
        self.log("val_acc", self.checked, on_step=False, on_epoch=True)
        self.log("acc_gap", 1 - (scores.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


trainer = lightning.Trainer(
    max_epochs=4,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[
        ModelCheckpoint(dirpath="kept", monitor="val_acc", mode="max"),
        EarlyStopping(monitor="val_loss", mode="min", patience=9),
        EarlyStopping(monitor="acc_gap", mode="min", patience=9),
    ],
)
module = Module()
trainer.fit(
    module, DataLoader(TensorDataset(x[:64], y[:64]), 16, shuffle=True), DataLoader(TensorDataset(x[64:], y[64:]), 16)
)

net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
accuracy, teacher = torchmetrics.Accuracy("multiclass", num_classes=3), nn.Linear(6, 3).requires_grad_(False)
for epoch in range(3):
    for inputs, labels in DataLoader(TensorDataset(x[:64], y[:64]), 16, shuffle=True):
        scores = net(inputs)
        with torch.no_grad():
            soft = teacher(inputs).softmax(1)
        accuracy.update(scores, labels)  # after the teacher's forward, which has no gradients
        optimizer.zero_grad()
        (F.cross_entropy(scores, labels) + 0.1 * F.cross_entropy(scores, soft)).backward()
        optimizer.step()
    print(f"accuracy {accuracy.compute():.4f}")
    accuracy.reset()
    with torch.no_grad():
        for inputs, labels in DataLoader(TensorDataset(x[64:], y[64:]), 16):
            accuracy.update(net(inputs), labels)
    print(f"accuracy {accuracy.compute():.4f}")
    accuracy.reset()

# A stream is predicted first and learned later. The accuracy covers all of it.
accuracy = torchmetrics.Accuracy("multiclass", num_classes=3)
for chunk in range(4):
    inputs = torch.randn(24, 6)
    with torch.no_grad():
        for part in inputs.split(8):
            accuracy.update(net(part), part[:, :3].argmax(1))
    for part in inputs.split(8):
        optimizer.zero_grad()
        F.cross_entropy(net(part), part[:, :3].argmax(1)).backward()
        optimizer.step()
    print(f"accuracy so far {accuracy.compute():.4f}")
print("sum", repr(sum(p.double().sum().item() for p in (*module.parameters(), *net.parameters()))))

"""Lightning, saved after every epoch and resumed by `ckpt_path`, with a seeded order of each epoch.

needs: lightning
cut: 10
runs: --resume
"""

import sys
import warnings

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

warnings.filterwarnings("ignore")
torch.manual_seed(8)
x = torch.randn(32, 5)


class EpochSampler(Sampler):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(torch.randperm(32, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def __len__(self):
        return 32


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))

    def training_step(self, batch, index):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


model = Net()
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8, sampler=EpochSampler())
saves = lightning.pytorch.callbacks.ModelCheckpoint("out", save_last=True, save_on_train_epoch_end=True)
trainer = lightning.Trainer(
    max_epochs=4, accelerator="cpu", logger=False, callbacks=[saves], enable_progress_bar=False,
    enable_model_summary=False,
)  # fmt: skip
trainer.fit(model, loader, ckpt_path="out/last.ckpt" if "--resume" in sys.argv else None)
print("sum", repr(sum(p.double().sum().item() for p in model.parameters())))

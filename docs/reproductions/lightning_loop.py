"""lightning: the last window of an epoch, and runs that are resumed with a stateful loader. No code of `pv`."""

import logging
import tempfile
import warnings
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self, estimates=False):
        super().__init__()
        self.weight, self.seen, self.estimates = torch.nn.Parameter(torch.zeros(1)), [], estimates

    def training_step(self, batch, index):
        self.seen.append(batch[0].tolist())
        return (self.weight * batch[0]).mean()

    def configure_optimizers(self):
        if self.estimates:
            self.planned = self.trainer.estimated_stepping_batches  # for a schedule
        return torch.optim.SGD(self.parameters(), lr=1.0)


def fit(module, loader, resume=None, **settings):
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(**quiet, **settings).fit(module, loader, ckpt_path=resume)
    return module


def three_epochs(folder, accumulate, estimates, resume=None):
    lightning.seed_everything(1, verbose=False)
    draw = torch.Generator().manual_seed(1)
    loader = StatefulDataLoader(TensorDataset(torch.arange(8.0)), 2, shuffle=True, generator=draw)
    save = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    settings = {"max_epochs": 3, "accumulate_grad_batches": accumulate, "callbacks": [save]}
    return fit(Module(estimates), loader, resume, **settings).seen


loader = DataLoader(TensorDataset(torch.ones(5, 1)), 1)
module = fit(Module(), loader, max_epochs=1, accumulate_grad_batches=4, enable_checkpointing=False)
print("3  weight after windows of 4 and 1 batches with mean gradient 1:", module.weight.item(), "expected -2.0")
for estimates in (False, True):
    for accumulate in (1, 2):
        folder = tempfile.mkdtemp()
        straight, failed = three_epochs(folder, accumulate, estimates), []
        for cut in range(1, len(straight) // accumulate):
            path = Path(folder) / f"step={cut}.ckpt"
            seen, expected = three_epochs(tempfile.mkdtemp(), accumulate, estimates, path), straight[cut * accumulate :]
            if len(seen) != len(expected) or seen[:1] != expected[:1]:
                failed.append((cut, seen, expected))
        name = "   with estimated_stepping_batches" if estimates else "10"
        cut, seen, expected = failed[0]
        print(f"{name}, accumulation {accumulate}, after the steps {[each for each, *_ in failed]}")
        print(f"   after step {cut}: {seen}, expected {expected}")

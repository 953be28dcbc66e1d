"""lightning: a run in two processes that is resumed with a stateful loader. No code of `pv`."""

import logging
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight, self.seen = torch.nn.Parameter(torch.zeros(1)), []

    def training_step(self, batch, index):
        self.seen.append(int(batch[0]))
        return (self.weight * batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def fit(folder, resume=None):
    lightning.seed_everything(1, verbose=False)
    draw = torch.Generator().manual_seed(1)
    loader = StatefulDataLoader(TensorDataset(torch.arange(16.0)), 1, shuffle=True, generator=draw)
    save = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(**quiet, devices=2, strategy="ddp", max_epochs=1, callbacks=[save])
    module = Module()
    trainer.fit(module, loader, ckpt_path=resume)
    return module.seen


def both(folder, cut):
    """Return what each rank has seen, in two processes of this script."""
    place = {"WORLD_SIZE": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{29700 + cut}"}
    command = [sys.executable, __file__, folder, str(cut)]
    ranks = [
        subprocess.Popen(command, env=os.environ | place | {"LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    return [rank.communicate()[0].strip() for rank in ranks]


if len(sys.argv) > 1:
    cut = int(sys.argv[2])
    print(fit(sys.argv[1], str(Path(sys.argv[1]) / f"step={cut}.ckpt") if cut else None))
else:
    folder = tempfile.mkdtemp()
    straight, again = both(folder, 0), both(folder, 2)
    for rank in (0, 1):
        print(f"18 rank {rank}: all steps {straight[rank]}; resumed after step 2: {again[rank]}")

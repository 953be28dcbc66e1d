"""accelerate: a loader fetches a batch ahead of save_state, so batches drawn at random differ after load_state."""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader


def noisy(rows):
    return torch.rand(len(rows))


def prepared():
    set_seed(1)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(range(6), 2, collate_fn=noisy, generator=torch.Generator().manual_seed(1))
    return accelerator, accelerator.prepare(loader)


accelerator, loader = prepared()
straight, folder = [], tempfile.mkdtemp()
for batch in loader:
    straight.append(batch.tolist())
    accelerator.save_state(f"{folder}/{len(straight)}")
accelerator, loader = prepared()
accelerator.load_state(f"{folder}/1")
print("12 rest of the epoch    ", [batch.tolist() for batch in accelerator.skip_first_batches(loader, 1)])
print("   of the run not cut   ", straight[1:])

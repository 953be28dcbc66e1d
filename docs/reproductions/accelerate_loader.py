"""accelerate: the orders of a prepared loader, over epochs and seeds, and after load_state. No code of `pv`."""

import tempfile
import warnings

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
EPOCHS, BATCHES = 3, 4


def prepared(seed=1, stateful=False, workers=0):
    set_seed(seed)
    settings = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=seed, use_stateful_dataloader=stateful)
    accelerator = Accelerator(cpu=True, dataloader_config=settings)
    draw = torch.Generator().manual_seed(seed)
    loader = DataLoader(TensorDataset(torch.arange(8)), 2, shuffle=True, generator=draw, num_workers=workers)
    return accelerator, accelerator.prepare(loader)


def epoch(loader):
    return [rows.tolist() for (rows,) in loader]


def prefetched(loader):
    """As the guide's loop for samples of variable size: next() as often as the loader has batches."""
    iterator = iter(loader)
    return [next(iterator)[0].tolist() for _ in range(len(loader))]


def resumed(path, cut, stateful):
    torch.manual_seed(99)
    accelerator, loader = prepared(stateful=stateful)
    accelerator.load_state(path)
    first, skip = divmod(cut, BATCHES)
    rows = []
    for at in range(first, EPOCHS):
        skipped = skip if at == first and not stateful else 0
        rows += epoch(accelerator.skip_first_batches(loader, skipped) if skipped else loader)
    return rows


def cuts(stateful):
    accelerator, loader = prepared(stateful=stateful)
    straight, folder = [], tempfile.mkdtemp()
    for _ in range(EPOCHS):
        for (rows,) in loader:
            straight.append(rows.tolist())
            accelerator.save_state(f"{folder}/{len(straight)}")
    for cut in range(1, len(straight)):
        rows = resumed(f"{folder}/{cut}", cut, stateful)
        if rows != straight[cut:]:
            yield cut, rows, straight[cut:]


_, loader = prepared()
print("1  three epochs of the guide's loop", [prefetched(loader) for _ in range(EPOCHS)])
_, loader = prepared()
print("   three epochs of a for loop      ", [epoch(loader) for _ in range(EPOCHS)])
orders = {}
for seed in (1, 2):
    _, loader = prepared(seed)
    orders[seed] = [epoch(loader) for _ in range(EPOCHS)]
print("2  epoch 2 of seed 1 is epoch 1 of seed 2:", orders[1][1] == orders[2][0])
for stateful in (False, True):
    for cut, rows, expected in cuts(stateful):
        print(
            "9 ",
            "stateful loader" if stateful else "skip_first_batches",
            f"after batch {cut}: {rows}, expected {expected}",
        )
for stateful in (False, True):
    for workers in (0, 2):
        _, loader = prepared(stateful=stateful, workers=workers)
        print(
            "17",
            "stateful loader" if stateful else "plain loader",
            f"with {workers} workers",
            epoch(loader),
            epoch(loader),
        )

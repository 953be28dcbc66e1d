"""torchdata alone: orders of a StatefulDataLoader after a restore, and with workers. A control of lightning_loop.py."""

import warnings

import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

warnings.simplefilter("ignore")


def fresh(own, kind=StatefulDataLoader, workers=0):
    torch.manual_seed(1)
    settings = {"generator": torch.Generator().manual_seed(1)} if own else {}
    return kind(TensorDataset(torch.arange(8)), 2, shuffle=True, num_workers=workers, **settings)


def resumed(own):
    loader, straight, states = fresh(own), [], []
    for _ in range(3):
        for (rows,) in loader:
            straight.append(rows.tolist())
            states.append((loader.state_dict(), torch.get_rng_state()))
    for cut in range(1, 12):
        loader = fresh(own)
        loader.load_state_dict(states[cut - 1][0])
        torch.set_rng_state(states[cut - 1][1])
        # The epoch that was cut first, also where all its batches were taken.
        seen = [rows.tolist() for _ in range((cut - 1) // 4, 3) for (rows,) in loader]
        if seen != straight[cut:]:
            name = "own generator" if own else "default generator"
            print(f"11 {name}, after batch {cut}: {seen}, expected {straight[cut:]}")


if __name__ == "__main__":
    resumed(own=True)
    resumed(own=False)
    for kind in (StatefulDataLoader, DataLoader):
        for workers in (0, 2):
            order = [rows.tolist() for (rows,) in fresh(True, kind, workers)]
            print(f"16 {kind.__name__} with {workers} workers", order)

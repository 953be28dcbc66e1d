"""torchdata alone: the orders of later epochs after a restored StatefulDataLoader. A control of lightning_loop.py."""

import torch
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader


def fresh(own):
    torch.manual_seed(1)
    settings = {"generator": torch.Generator().manual_seed(1)} if own else {}
    return StatefulDataLoader(TensorDataset(torch.arange(8)), 2, shuffle=True, **settings)


for own in (True, False):
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

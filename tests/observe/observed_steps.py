"""Counts the calls with which the host reads a value of a tensor, or moves a tensor to the CPU, in a training."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__", "nonzero", "equal")
READS = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.equal", "aten.is_nonzero")
COUNTED = {*range(3, 10), *range(11, 20)}
"""Steps after which no trace is flushed: this happens after steps 1, 2, 10 and 20."""


class Calls(TorchFunctionMode):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # `row_hashes` gets what a loader has delivered to the memory of the host, and nothing else.
        is_of_loader = sys._getframe(1).f_code.co_name == "row_hashes"
        if getattr(func, "__name__", "") in WAITING and not is_of_loader:
            self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_by_mask = func is torch.ops.aten.index.Tensor and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        if str(func).startswith(READS) or is_by_mask:
            self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def train() -> dict[str, int]:
    """Train with a loss of torch, one by hand and an evaluation; return how often the host waits in COUNTED steps."""
    torch.manual_seed(0)
    counts: Counter[str] = Counter()
    model = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 16), nn.Dropout(0.1), nn.Linear(16, 40))
    model[1].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    rows = torch.randint(40, (160, 9))
    batches = iter(torch.utils.data.DataLoader(rows, batch_size=4))

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        for by_hand in (False, True):
            batch = next(batches)
            logits, labels = model(batch[:, :-1]), batch[:, 1:]
            if by_hand:
                loss = -logits.log_softmax(-1).gather(-1, labels[..., None]).mean()
            else:
                loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
            (loss / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), torch.tensor(1.0))
        optimizer.step()
        schedule.step()
        model.eval()
        with torch.no_grad():
            F.mse_loss(model(rows[:4, :-1]), torch.zeros(4, 8, 40), reduction="none").mean()
        model.train()

    for number in range(1, 21):
        if number in COUNTED:
            with Calls(counts), Operations(counts):
                step()
        else:
            step()
    return dict(sorted(counts.items()))


def count(folder: Path) -> None:
    """Write into `folder/counts.json` the counts of a script alone, observed, and by an observer that reads a value."""
    results = {"script": train()}
    from pv.observe import losses, observer

    observer.install(folder)
    results["observed"] = train()
    original = losses.cross_entropy_weights

    def read(logits: torch.Tensor, gradient: torch.Tensor) -> Any:
        gradient.sum().item()
        return original(logits, gradient)

    losses.cross_entropy_weights = read
    results["reading"] = train()
    observer.current.finish()
    (folder / "counts.json").write_text(json.dumps(results))

"""Windows that a rank works on, beside the other ranks of its gloo group."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from falsifiers.support.steps import V, WindowCase, gradients_of

FLAGS = (False, True, False)
"""Flags of a rank, which travel with the counts of a window."""


class Seen(NamedTuple):
    """What one rank has after a window: its gradients, the window's counts, and its sums over all ranks."""

    gradients: dict[str, Tensor | None]
    count: int
    total: int
    sequences: int
    sums: dict[str, float]


class Collectives(TorchDispatchMode):
    """Record each collective as (name, dtype, numbers); those of the gradients come from the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, torch.dtype, int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "c10d":
            tensors = list(_tensors(args))
            dtype = tensors[0].dtype if tensors else torch.uint8
            name = str(function).split(".")[1].rstrip("_")
            self.seen.append((name, dtype, sum(tensor.numel() for tensor in tensors)))
        return function(*args, **(kwargs or {}))


def _tensors(arguments: Any) -> Iterator[Tensor]:
    for each in arguments:
        if isinstance(each, Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)


class Worker:
    """One rank: teacher, student, and the module that averages gradients over the ranks."""

    def __init__(self, subject: Any, case: WindowCase, rank: int, dtype: torch.dtype = torch.float64) -> None:
        self.subject, self.rank = subject, rank
        self.module = DistributedDataParallel(case.model(dtype=dtype))
        self.parallel = subject.DataParallel(self.module)
        self.teacher = subject.FixtureTeacher(case.teacher.to(dtype))
        self.student = subject.ModuleStudent(self.module, V)

    def window(self, case: WindowCase) -> Any:
        """Accumulate the gradient of a window on a module without one."""
        self.module.zero_grad(set_to_none=True)
        batches = case.batches(self.rank)
        settings = {"parallel": self.parallel, "metrics": True, "flags": FLAGS}
        return self.subject.kd_window(self.teacher, self.student, batches, case.weights, **settings)

    def seen(self, case: WindowCase) -> Seen:
        """Return what this rank has after a window."""
        window = self.window(case)
        sums = self.parallel.sum_metrics(torch.stack(list(window.sums.values())))
        counts = int(window.count), int(window.total), int(window.sequences)
        return Seen(gradients_of(self.module), *counts, dict(zip(window.sums, sums.tolist(), strict=True)))


def windows(
    subject: Any, cases: Sequence[WindowCase], dtype: torch.dtype = torch.float64
) -> Callable[[int], list[Seen]]:
    """Return the work of a rank: these windows in turn, all with the first one's models."""

    def work(rank: int) -> list[Seen]:
        worker = Worker(subject, cases[0], rank, dtype)
        return [worker.seen(case) for case in cases]

    return work

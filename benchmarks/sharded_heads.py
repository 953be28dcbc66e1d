"""What a step costs with a teacher and a student that two ranks share, gathered once a step or in every micro-batch.

    MALLOC_MMAP_THRESHOLD_=1000000 python benchmarks/sharded_heads.py [VOCABULARY] [ROUNDS]

Two gloo ranks on the CPU, each with micro-batches of 256 tokens. Both variants are `kd_window` with the same models,
interleaved; without the gather once a step, `ShardedParallel.window` does nothing. CPU seconds, the
peak above the memory before the step, and the bytes that all-gathers receive are measured on rank 0.
"""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from reference_trainer.distillation.objective import Weights
from reference_trainer.distillation.protocols import Batch
from reference_trainer.distillation.providers import ModuleStudent, ModuleTeacher
from reference_trainer.models.decoder import DecoderConfig, new_decoder
from reference_trainer.ranks.parallel import ShardedParallel, shard
from reference_trainer.training.window import kd_window

RANKS, LENGTH, MIB = 2, 256, 1 << 20
TEACHER, STUDENT = (4, 512), (2, 256)
ACCUMULATIONS = (1, 4)


class EveryMicroBatch(ShardedParallel):
    """Ranks that gather all weights in each forward and backward."""

    def window(self, *, teacher: bool = True) -> Any:
        return nullcontext()


VARIANTS = {"in every micro-batch": EveryMicroBatch, "once a step": ShardedParallel}


class Gathered(TorchDispatchMode):
    """Count the bytes of the results of all-gathers."""

    bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "allgather_base" in str(function):
            self.bytes += args[0].nbytes
        return function(*args, **(kwargs or {}))


def status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))


def work(rank: int, place: str, vocabulary: int, rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=RANKS)
    teacher, student = (
        shard(
            new_decoder(DecoderConfig(vocab_size=vocabulary, layers=n, width=w, heads=w // 16), seed),
            torch.device("cpu"),
        )
        for seed, (n, w) in enumerate((TEACHER, STUDENT))
    )
    providers = ModuleTeacher(teacher, vocabulary), ModuleStudent(student, vocabulary)
    weights, draw = Weights(temperature=2.0, ce_weight=0.3, kd_weight=0.7), torch.Generator().manual_seed(rank)
    tokens = torch.randint(vocabulary, (max(ACCUMULATIONS), 1, LENGTH), generator=draw)
    for count in ACCUMULATIONS:
        batches = [Batch(tokens=part, labels=part) for part in tokens[:count]]
        measured: dict[str, list[tuple[float, int, int]]] = {name: [] for name in VARIANTS}
        gradients: dict[str, list[torch.Tensor]] = {}
        for _ in range(rounds + 1):  # the first round is not counted
            for name, kind in VARIANTS.items():
                student.zero_grad()
                gc.collect()
                ctypes.CDLL("libc.so.6").malloc_trim(0)
                dist.barrier()
                Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
                before, begun = status("VmRSS"), time.process_time()
                with Gathered() as gathered:
                    kd_window(*providers, batches, weights, parallel=kind(student, teacher=teacher))
                seconds = time.process_time() - begun
                measured[name].append((seconds, status("VmHWM") - before, gathered.bytes))
                gradients[name] = [parameter.grad.to_local().clone() for parameter in student.parameters()]
        first, second = gradients.values()
        if not all(torch.equal(a, b) for a, b in zip(first, second, strict=True)):
            raise SystemExit("the variants have different gradients")
        if rank == 0:
            show(vocabulary, count, {name: runs[1:] for name, runs in measured.items()})
    dist.destroy_process_group()


def show(vocabulary: int, count: int, measured: dict[str, list[tuple[float, int, int]]]) -> None:
    """Print the medians of each variant, and both as a share of the first."""
    reference = next(iter(measured.values()))
    for name, runs in measured.items():
        pairs = list(zip(runs, reference, strict=True))
        time_ratio, memory_ratio = (statistics.median(a[k] / b[k] for a, b in pairs) for k in (0, 1))
        seconds, peak, gathered = (statistics.median(run[k] for run in runs) for k in range(3))
        print(
            f"| {vocabulary:,} | {count} | {name} | {gathered / MIB:,.0f} | {time_ratio:.2f} | {seconds:.2f} | "
            f"{memory_ratio:.2f} | {peak / MIB:,.0f} |",
            flush=True,
        )


def main() -> None:
    vocabulary, rounds = (int(sys.argv[k]) if len(sys.argv) > k else usual for k, usual in ((1, 32_000), (2, 3)))
    print("| V | micro-batches | gathered | MiB | time, ratio | CPU s | memory, ratio | peak MiB |\n|" + "---|" * 8)
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as directory:
        children = []
        for rank in range(RANKS):
            child = os.fork()
            if not child:
                status_code = 1
                try:
                    work(rank, f"{directory}/store", vocabulary, rounds)
                    status_code = 0
                finally:
                    sys.stdout.flush()
                    os._exit(status_code)
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            raise SystemExit("a rank failed")


if __name__ == "__main__":
    main()

"""Validates the same contracts in two checkouts in turn, without a cache, and prints the ratios of CPU and wall time.

The second checkout is the one of this script. CPU time includes all workers of `pv`; a loaded machine
changes it less than wall time.

    git worktree add ../old COMMIT
    python benchmarks/validation.py ../old kd-loss metrics schedule --rounds 2
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measuring import Taken

HERE = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path, help="the checkout to compare with")
    parser.add_argument("contracts", nargs="+", help="ids of contracts, or of claims")
    parser.add_argument("--rounds", type=int, default=1, help="times that each contract is validated in each checkout")
    options = parser.parse_args()
    totals: dict[Path, list[Taken]] = {options.old: [], HERE: []}
    print("| contract | CPU s, old | new | ratio | wall s, old | new | ratio |\n|---|---|---|---|---|---|---|")
    for contract in options.contracts:
        times: dict[Path, list[Taken]] = {checkout: [] for checkout in totals}
        for _ in range(options.rounds):
            for checkout in totals:
                times[checkout].append(validate(checkout, contract))
        medians = {checkout: _median(taken) for checkout, taken in times.items()}
        for checkout, taken in medians.items():
            totals[checkout].append(taken)
        print(_row(contract, *medians.values()), flush=True)
    print(_row("all", *(Taken(*map(sum, zip(*taken, strict=True))) for taken in totals.values())))


def validate(checkout: Path, contract: str) -> Taken:
    """Return the seconds of one validation, of all its processes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pv", "validate", contract, "--no-cache"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(cpu_s, time.perf_counter() - start)


def _median(taken: list[Taken]) -> Taken:
    return Taken(*map(statistics.median, zip(*taken, strict=True)))


def _row(name: str, old: Taken, new: Taken) -> str:
    ratios = (new.cpu / old.cpu, new.wall / old.wall)
    return (
        f"| {name} | {old.cpu:.1f} | {new.cpu:.1f} | {ratios[0]:.2f} "
        f"| {old.wall:.0f} | {new.wall:.0f} | {ratios[1]:.2f} |"
    )


if __name__ == "__main__":
    main()

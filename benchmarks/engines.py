"""Which engine finds which planted fault, and how fast: every falsifier of a contract against every mutant of it.

python benchmarks/engines.py CONTRACT [--module MODULE] [FALSIFIER ...]

A validation judges a mutant by the falsifiers that claim it. Here each declared mutant is tried on all of them, also
where it is out of their reach; for each engine the fastest that finds it is shown, with its seconds.
"""

import os
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pv
from pv.contract.model import Contract, Falsifier, Harness
from pv.engines.registry import engine_of
from pv.engines.trial import Trial
from pv.execution.attempt import Attempts
from pv.execution.executor import Executor
from pv.execution.validation import Validation
from pv.results.evidence import DeviceInfo
from pv.results.outcome import Selection, killed
from pv.source.project import find_project
from pv.workers import tasks
from pv.workers.pool import Pool

TITLES = {"harness": "proof", "run": "reference run"}


def engine(falsifier: Falsifier) -> str:
    name = engine_of(falsifier).name
    return TITLES.get(name, name)


def main(name: str, module: str, patterns: list[str]) -> None:
    project = find_project(Path.cwd())
    (contract,) = (c for c in pv.load(project.contracts).contracts if c.id == name)
    contract = replace(contract, mutants=tuple(m for m in contract.mutants if fnmatchcase(m.module, module)))
    crossed = everything_against_everything(contract, patterns)
    validation = Validation([crossed], {name: Selection()}, Attempts(project))
    validation.devices = {"cpu": DeviceInfo()}
    subjects = {crossed.subject_of(claim) for claim in crossed.claims}
    with Pool(tasks.preload(project, [crossed], subjects), os.cpu_count() or 1) as pool:
        Executor(pool).run(validation)
    results_of = validation.evidence(crossed).mutants
    engines = sorted({engine(f) for f in crossed.claims})
    print("| fault |", " | ".join(engines), "|")
    print("|---|" + "---|" * len(engines))
    found = Counter[str]()
    for mutant in contract.mutants:
        results = [result(results_of, [f.id for f in crossed.claims if engine(f) == e], mutant.id) for e in engines]
        found.update(e for e, text in zip(engines, results, strict=True) if text != "-")
        print(f"| {mutant.fault} |", " | ".join(results), "|")
    print("| found |", " | ".join(f"{found[e]} of {len(contract.mutants)}" for e in engines), "|")


def everything_against_everything(contract: Contract, patterns: list[str]) -> Contract:
    mutants = tuple(m.id for m in contract.mutants)
    wanted = [f for f in contract.claims if not patterns or any(fnmatchcase(f.id, p) for p in patterns)]
    # A run is judged at its small arguments, which not every run has.
    able = (f for f in wanted if f.run is None or contract.run(f.run).small is not None)
    crossed = [replace(f, kills=mutants, devices=("cpu",)) for f in able]
    harnesses = tuple(f for f in crossed if isinstance(f, Harness))
    return replace(contract, harnesses=harnesses, falsifiers=tuple(f for f in crossed if not isinstance(f, Harness)))


def result(trials: dict[tuple[str, str], Trial], falsifiers: Iterable[str], mutant: str) -> str:
    detected = [t for f in falsifiers if (t := trials.get((f, mutant))) is not None and killed(t)]
    if not detected:
        return "-"
    first = min(detected, key=lambda t: t.seconds)
    return f"{first.seconds:.2f} s ({first.falsifier}; {len(detected)} find it)"


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("contract")
    parser.add_argument("--module", default="*", help="only mutants of modules that match")
    parser.add_argument("falsifiers", nargs="*", help="glob patterns")
    asked = parser.parse_intermixed_args()
    main(asked.contract, asked.module, asked.falsifiers)

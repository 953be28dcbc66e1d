"""Which generated mutants that the contracts killed before a change they do not kill after it.

python benchmarks/yardstick.py draw [N] [--seed S]    before the change: draw N mutants, keep those that are killed
python benchmarks/yardstick.py check                  after it: exit with 1 if one of them is not killed

The mutants are drawn from all functions of `reference_trainer`, whatever the contracts say, and judged as by `pv
mutate`, first by a contract's own claims. The list names each by its function and by the text before and after, so it
depends neither on line numbers nor on contracts, which can be merged or renamed. It is written as mutants are judged:
an interrupted draw keeps what was judged until then.
"""

import json
import random
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path

from pv.commands.plan import check, project_of
from pv.contract.model import Contract, Edit, Falsifier, Target
from pv.execution.mutants import MutantTrials
from pv.mutation import scope
from pv.mutation.generate import GeneratedMutant, Module
from pv.mutation.judge import DETECTED, Judged, MutantStatus
from pv.source import syntax
from pv.source.project import Project

PACKAGE = "reference_trainer"
LIST = Path(__file__).with_suffix(".json")


class EditTrials(MutantTrials):
    """The trials of those generated mutants that are one of `edits`."""

    edits: frozenset[Edit] = frozenset()

    def choose(self, generated: Sequence[GeneratedMutant]) -> list[GeneratedMutant]:
        return [mutant for mutant in generated if mutant.mutant.change in self.edits]


def generated(project: Project) -> list[Edit]:
    """Return every generated mutant of the package."""
    modules = scope.modules(project, [Target(PACKAGE)])
    return [edit_of(mutant) for module in modules for mutant in module.mutants(functions(module))]


def functions(module: Module) -> frozenset[str]:
    return frozenset(f"{module.name}:{name}" for name, _ in syntax.functions(module.source.tree))


def edit_of(mutant: GeneratedMutant) -> Edit:
    assert isinstance(mutant.mutant.change, Edit)
    return mutant.mutant.change


def judged(project: Project, edits: Sequence[Edit], jobs: int) -> Iterator[Judged]:
    """Yield the status of each edit that is a mutant of a contract with a score; show the progress."""
    contracts, _ = check((), project=project)
    scored = [c for c in contracts if c.strict and not scope.holders(project, c)]
    for place, contract in enumerate(scored, 1):
        mine = of_contract(project, contract, edits)
        yield from by_contract(project, contract, mine, jobs)
        if mine:
            print(f"{contract.id} ({place} of {len(scored)}): {len(mine)} tried", file=sys.stderr, flush=True)


def of_contract(project: Project, contract: Contract, edits: Sequence[Edit]) -> frozenset[Edit]:
    """Return the edits of the modules whose mutants the contract judges."""
    named = contract.mutation_scope.modules
    found = scope.named(project, contract) if named else scope.default(project, contract, contract.claims)
    names = {module.name for module in found}
    return frozenset(edit for edit in edits if edit.function.module in names)


def by_contract(project: Project, contract: Contract, edits: frozenset[Edit], jobs: int) -> Iterator[Judged]:
    """Yield the status of each edit by the contract's own claims; if they do not kill it, that by its judges too."""
    for falsifiers in (contract.claims, scope.judging(contract)) if contract.judges else (contract.claims,):
        found = by_falsifiers(project, contract, falsifiers, edits, jobs) if edits else ()
        yield from found
        edits -= {edit_of(each.mutant) for each in found if each.status is MutantStatus.KILLED}


def by_falsifiers(
    project: Project, contract: Contract, falsifiers: Sequence[Falsifier], edits: frozenset[Edit], jobs: int
) -> tuple[Judged, ...]:
    modules = tuple({edit.function.module for edit in edits})
    trials = EditTrials(project, contract, falsifiers, jobs=jobs, modules=modules)
    trials.edits = edits
    result = trials.run()
    for trial in result.unfit:
        print(f"{trial.falsifier} does not hold on the code itself: {trial.detail}", file=sys.stderr)
    return result.judged


def draw(project: Project, path: Path, number: int, seed: int, jobs: int) -> int:
    """Write the killed ones of `number` generated mutants to the list at `path`."""
    every = generated(project)
    drawn = random.Random(seed).sample(every, min(number, len(every)))
    killed: list[Edit] = []
    for each in judged(project, drawn, jobs):
        killed += [edit_of(each.mutant)] if each.status is MutantStatus.KILLED else []
        path.write_text(listed(killed), encoding="utf-8")
    print(f"{len(killed)} of {len(drawn)} killed; {len(every)} mutants in all; seed {seed}; {path}")
    return 0 if killed else 1


def listed(edits: Sequence[Edit]) -> str:
    """Return the edits as JSON, one a line: module, function, text before, text after, which occurrence from 0."""
    rows = [[e.function.module, e.function.attribute, e.find, e.replace, e.occurrence] for e in edits]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in sorted(rows)) + "\n]\n"


def recheck(project: Project, path: Path, jobs: int) -> int:
    """Print the mutants of the list at `path` that are not killed."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    edits = [Edit(function=Target(m, f), find=before, replace=after, occurrence=n) for m, f, before, after, n in rows]
    status = dict.fromkeys(edits, "no falsifier executes its function") | dict.fromkeys(
        frozenset(edits) - frozenset(generated(project)), "the code has changed: no longer a mutant"
    )
    status |= {edit_of(each.mutant): each.status.value for each in judged(project, edits, jobs)}
    left = [edit for edit in edits if status[edit] not in {each.value for each in DETECTED}]
    for edit in left:
        print(f"{edit.function}: {edit.find} -> {edit.replace or 'pass'} ({edit.occurrence}): {status[edit]}")
    print(f"{len(edits) - len(left)} of {len(edits)} killed")
    return 1 if left or not edits else 0


def main() -> int:
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=["draw", "check"])
    parser.add_argument("number", nargs="?", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", type=Path, default=LIST)
    asked = parser.parse_args()
    if asked.command == "check" and not asked.list.exists():
        parser.error(f"missing list {asked.list}: draw it before the change")
    if asked.command == "check":
        return recheck(project_of(()), asked.list, asked.jobs)
    return draw(project_of(()), asked.list, asked.number, asked.seed, asked.jobs)


if __name__ == "__main__":
    sys.exit(main())

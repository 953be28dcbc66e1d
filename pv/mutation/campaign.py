"""Tries every automatic mutant of a contract on the falsifiers that reach it, until one notices."""

import random
import shutil
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pv import binding, syntax, tasks
from pv.evidence import Ending, Trial
from pv.model import Contract, Falsifier, Harness, Mutant
from pv.mutation import judge, scope
from pv.mutation.generate import Automatic, Module, compiles_to
from pv.mutation.judge import FALLEN, Fate, Judged
from pv.mutation.memory import Memory
from pv.mutation.result import Plan, Result
from pv.project import Project
from pv.proofs import hard_limit_s
from pv.tasks import Code
from pv.workers.pool import Pool, Reply, Task
from pv.workers.reading import trial

HARDER = 10
"""How many times its examples a falsifier gets to tell an accepted equivalent from the code."""


@dataclass(slots=True)
class _Hunted:
    """A mutant that is being tried: on whom still, and on whom already."""

    mutant: Automatic
    left: list[Falsifier]
    equivalent: bool
    tried: list[str] = field(default_factory=list)
    late: bool = False
    """Whether a limit ran out on it once: that may be the machine's doing, so it takes a second time."""


@dataclass(frozen=True, slots=True)
class _Key:
    falsifier: Falsifier
    hunted: _Hunted | None
    directory: str


class Hunt:
    """One contract's mutants against `falsifiers` of it."""

    def __init__(self, project: Project, contract: Contract, falsifiers: Sequence[Falsifier], plan: Plan) -> None:
        self.project, self.contract, self.plan = project, contract, plan
        self.falsifiers = [f for f in falsifiers if f.bound and "cpu" in f.devices]
        self.restricted = plan.widely or bool(plan.modules) or len(falsifiers) < len(contract.claims)
        self.clean: dict[str, Trial] = {}
        self.judged: list[Judged] = []
        self._codes = {f.id: Code(project, contract.subject_of(f)) for f in self.falsifiers}
        self._kills: Counter[tuple[str, str]] = Counter()
        self._waiting: deque[_Hunted] = deque()
        self._running: dict[str, None] = {}
        self._total = self._done = 0
        self._named = () if plan.widely else contract.mutated
        self._places = () if plan.widely else contract.places
        self._idle: tuple[str, ...] = ()
        """What the contract names to be mutated and no falsifier runs."""

    def run(self) -> Result:
        """What became of the mutants. Nothing is tried where none of the modules that were asked for is mutated."""
        asked = self.plan.modules
        if not asked or scope.matching(scoped := self._modules(self.falsifiers), asked):
            return self._tried()
        return Result(
            contract=self.contract,
            falsifiers=tuple(f.id for f in self.falsifiers),
            total=0,
            judged=(),
            mutated=self._places,
            restricted=True,
            elsewhere=scope.elsewhere(self.contract, scoped, asked, widely=self.plan.widely),
        )

    def _tried(self) -> Result:
        """Tries the code itself first, for what is reached and in what time, then the mutants."""
        targets = scope.subjects(self.contract, self.falsifiers)
        preload = tasks.preload(self.project, [self.contract], targets)
        with Pool(preload, self.plan.jobs, spawn=self.plan.spawn) as pool:
            self._try_clean(pool)
            found = self._mutants()
            chosen = self._chosen(found)
            equivalent = self._equivalent()
            memory = Memory(self.project, self.contract, self.clean)
            self._queue(chosen, frozenset(equivalent), None if self.plan.fresh else memory)
            self._hunt(pool)
        memory.keep(self.judged, whole=not self.restricted)
        order = {mutant.mutant.id: place for place, mutant in enumerate(chosen)}
        return Result(
            contract=self.contract,
            falsifiers=tuple(f.id for f in self._fit()),
            total=len(found),
            judged=tuple(sorted(self.judged, key=lambda j: order[j.mutant.mutant.id])),
            unfit=tuple(t for t in self.clean.values() if t.ending not in (Ending.HELD, Ending.SKIPPED)),
            unused=self._unused(found, equivalent),
            idle=() if self.restricted else self._idle,
            mutated=self._places,
            files=frozenset().union(*(t.files for t in self.clean.values())),
            restricted=self.restricted,
        )

    def _try_clean(self, pool: Pool) -> None:
        self._total, self._done = len(self.falsifiers), 0
        for falsifier in self.falsifiers:
            run = self.contract.run(falsifier.run) if falsifier.run is not None else None
            self._submit(pool, falsifier, None, max(falsifier.limit_s, run.limit_s if run is not None else 0.0))
        for task, reply in pool.replies(self._began):
            self.clean[task.key.falsifier.id] = self._ended(task, reply)

    def _fit(self) -> list[Falsifier]:
        return [f for f in self.falsifiers if self.clean[f.id].ending is Ending.HELD]

    def _mutants(self) -> list[Automatic]:
        fit = self._fit()
        reached = frozenset().union(*(self.clean[f.id].reached for f in fit))
        if self._named:
            self._idle = tuple(str(each.target) for each in self._named if not any(map(each.holds, reached)))
            reached = frozenset(name for name in reached if any(each.holds(name) for each in self._named))
        return scope.mutants(scope.matching(self._modules(fit), self.plan.modules), reached)

    def _modules(self, judges: Sequence[Falsifier]) -> list[Module]:
        """What could be mutated, whatever modules were asked for."""
        where = scope.imported if self.plan.widely else scope.modules
        return where(self.project, [each.target for each in self._named] or scope.under_contract(self.contract, judges))

    def _chosen(self, found: Sequence[Automatic]) -> list[Automatic]:
        if self.plan.sample is None or self.plan.sample >= len(found):
            return list(found)
        drawn = set(random.Random(self.plan.seed).sample(range(len(found)), self.plan.sample))
        return [mutant for place, mutant in enumerate(found) if place in drawn]

    def _equivalent(self) -> dict[str, str]:
        """What each accepted equivalent compiles to, with how the contract names it. Lint has seen that it applies."""
        found = {}
        for accepted in self.contract.equivalents:
            change = accepted.change
            path = binding.target_file(self.project, change.function)
            changed = syntax.patch(binding.source(path), change.function.attribute, change.find, change.replace)
            found[compiles_to(binding.module_name(self.project, path), changed)] = (
                f"{accepted.where}: {change.find} -> {change.replace}"
            )
        return found

    def _unused(self, found: Sequence[Automatic], equivalent: Mapping[str, str]) -> tuple[str, ...]:
        """The accepted equivalents that are no automatic mutant; a part of the contract has not all its mutants."""
        results = {mutant.result for mutant in found}
        return () if self.restricted else tuple(why for result, why in equivalent.items() if result not in results)

    def _queue(self, chosen: Sequence[Automatic], equivalent: frozenset[str], memory: Memory | None) -> None:
        fit = self._fit()
        self._total, self._done = len(chosen), 0
        for mutant in chosen:
            able = [f for f in fit if mutant.place in self.clean[f.id].reached]
            accepted = mutant.result in equivalent
            recalled = memory.recalled(mutant, able) if memory is not None and not accepted else None
            if recalled is not None:
                self._close(recalled)
            elif able:
                self._waiting.append(_Hunted(mutant, able, accepted))
            else:
                self._close(Judged(mutant=mutant, fate=Fate.UNREACHED))

    def _hunt(self, pool: Pool) -> None:
        for _ in range(self.plan.jobs):
            self._next(pool)
        for task, reply in pool.replies(self._began):
            self._heard(pool, task.key.hunted, self._ended(task, reply))

    def _next(self, pool: Pool) -> None:
        if self._waiting:
            self._ask(pool, self._waiting.popleft())

    def _ask(self, pool: Pool, hunted: _Hunted) -> None:
        """Tries the mutant on who is likely to notice soonest: the cheapest, first those that did so here before."""
        name = hunted.mutant.function
        one = min(hunted.left, key=lambda f: self.clean[f.id].seconds / (1 + self._kills[name, f.id]))
        hunted.left.remove(one)
        hunted.tried.append(one.id)
        harder = HARDER if hunted.equivalent else 1
        limit = judge.limit_on_mutant(self.clean[one.id].seconds) * harder
        if isinstance(one, Harness):
            limit = hard_limit_s(one)
        self._submit(pool, one, hunted, limit, examples=one.examples * harder)

    def _heard(self, pool: Pool, hunted: _Hunted, found: Trial) -> None:
        fate, judged_by = judge.fate(found), next(f for f in self.falsifiers if f.id == found.falsifier)
        if fate is Fate.BY_LIMIT and isinstance(judged_by, Harness):
            fate = None  # a proof that needs longer has noticed nothing
        if fate is Fate.BY_LIMIT and not hunted.late:
            hunted.left.append(judged_by)
            hunted.tried.remove(judged_by.id)
            hunted.late, fate = True, None
        if fate is None and hunted.left:
            self._ask(pool, hunted)
            return
        if fate in FALLEN:
            self._kills[hunted.mutant.function, found.falsifier] += 1
            fate = Fate.NOT_EQUIVALENT if hunted.equivalent else fate
        standing = Fate.EQUIVALENT if hunted.equivalent else Fate.SURVIVED
        seen = judge.seen(found) if fate is not None else ""
        self._close(Judged(mutant=hunted.mutant, fate=fate or standing, tried=tuple(hunted.tried), seen=seen))
        self._next(pool)

    def _close(self, judged: Judged) -> None:
        self.judged.append(judged)
        self._done += 1
        self._tell()

    def _submit(
        self, pool: Pool, falsifier: Falsifier, hunted: _Hunted | None, limit_s: float, examples: int | None = None
    ) -> None:
        mutant = hunted.mutant.mutant if hunted is not None else None
        directory = pool.scratch()
        body = self._body(falsifier, mutant, examples or falsifier.examples, directory)
        body["plan"] |= {"statements": mutant is None, "fenced": True}
        key = _Key(falsifier, hunted, str(directory))
        pool.submit(Task(key=key, body=body, limit_s=limit_s, memory_mib=tasks.memory_mib("cpu")))

    def _body(self, falsifier: Falsifier, mutant: Mutant | None, examples: int, directory: Any) -> dict[str, Any]:
        code = self._codes[falsifier.id]
        if isinstance(falsifier, Harness):
            return tasks.prove(code, falsifier, mutant=mutant)
        if falsifier.run is None:
            how: Mapping[str, Any] = {"examples": examples, "seed": 0, "mutant": mutant, "replay": ""}
            return tasks.falsify(code, self.contract, falsifier, "cpu", **how)
        run = self.contract.run(falsifier.run)
        body = tasks.execute(code, run, "cpu", directory, arguments=run.small or {}, mutant=mutant)
        return body | {"test": code.test(falsifier)}

    def _began(self, task: Task) -> None:
        self._running[_shown(task.key)] = None
        self._tell()

    def _ended(self, task: Task, reply: Reply) -> Trial:
        key = task.key
        self._running.pop(_shown(key), None)
        shutil.rmtree(key.directory, ignore_errors=True)
        if key.hunted is None:
            self._done += 1
        mutant = key.hunted.mutant.mutant.id if key.hunted is not None else None
        seed = tasks.seed_of(key.falsifier.id, 0)
        return trial(reply, falsifier=key.falsifier.id, device="cpu", mutant=mutant, seed=seed)

    def _tell(self) -> None:
        if self.plan.on_progress is not None:
            self.plan.on_progress(self._done, self._total, tuple(self._running))


def _shown(key: _Key) -> str:
    function = f" on {key.hunted.mutant.function}" if key.hunted is not None else ""
    return f"{key.falsifier.id}{function}"

"""Carries a validation out: which task follows from which answer, until nothing is left to try."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pv import devices, proofs, records, tasks
from pv.campaign.bodies import Bodies
from pv.campaign.job import Job, Known, Options, Progress, RunState
from pv.cells import Selection, killed, told_apart
from pv.evidence import DeviceInfo, Ending, Evidence, Trial
from pv.model import Contract, Falsifier, Harness, Run, Target, Where
from pv.mutation import scope
from pv.mutation.judge import limit_on_mutant
from pv.project import Project
from pv.workers.pool import Pool, Reply, Task
from pv.workers.reading import trial

PREDICATE_LIMIT_S = 60.0
MOST_AUTOMATIC = 20
"""How many automatic mutants a falsifier that declares none may be tried on; `pv mutate` tries all."""
STOPPED = "not run: --fail-fast stopped at the first failure"
GOOD = {Ending.HELD, Ending.SKIPPED}


class Campaign:
    """One validation of contracts that lint found runnable. Mutants that stand at a `stale` place are left out."""

    def __init__(
        self,
        project: Project,
        contracts: Sequence[Contract],
        selections: Mapping[str, Selection],
        subjects: Mapping[str, Target],
        options: Options,
        stale: frozenset[Where] = frozenset(),
    ) -> None:
        self.project, self.contracts = project, contracts
        self.selections, self.options = selections, options
        self.stale = stale
        self.devices: dict[str, DeviceInfo] = {}
        self.notes: tuple[str, ...] = ()
        self._absent: dict[str, str] = {}
        self._known = {contract.id: Known() for contract in contracts}
        self._bodies = Bodies(project, subjects, options)
        self._running: dict[str, None] = {}
        self._done = self._total = 0
        self._cancelled = False

    def evidence(self, contract: Contract) -> Evidence:
        """What is known of a contract so far."""
        known = self._known.get(contract.id, Known())
        return Evidence(
            trials=known.trials,
            mutants=known.mutants,
            automatic=known.drawn,
            absent=self._absent,
            devices=self.devices,
        )

    def bases(self, contract: Contract) -> dict[str, records.Basis]:
        """What evidence of each falsifier of a contract rests on."""
        return {
            f.id: records.basis(self.project, contract, f, self._bodies.subject(contract, f)) for f in contract.claims
        }

    def run(self) -> None:
        """Tries everything. When it is interrupted, what is known so far can still be read."""
        if not self.contracts:
            return
        subjects = {self._bodies.subject(c, f) for c in self.contracts for f in c.claims}
        preload = tasks.preload(self.project, self.contracts, subjects)
        asked = sorted({device for contract in self.contracts for device in self.selections[contract.id].live})
        with Pool(preload, self.options.jobs, spawn=self.options.spawn) as pool:
            self.devices, self._absent = devices.find(pool, self.project, asked, self.options.probe)
            self._start(pool)
            for task, reply in pool.replies(self._began):
                self._ended(pool, task.key, reply)
            self.notes = (pool.note,) if pool.note else ()

    def _start(self, pool: Pool) -> None:
        for contract in self.contracts:
            selection = self.selections[contract.id]
            for falsifier in filter(selection.tries, contract.claims):
                for device in falsifier.devices:
                    if device in selection.live and device in self.devices:
                        self._attack(pool, contract, falsifier, device)

    def _attack(self, pool: Pool, contract: Contract, falsifier: Falsifier, device: str) -> None:
        if falsifier.run is not None:
            self._after_run(pool, contract, falsifier, device, small=False)
        else:
            self._falsify(pool, Job(contract=contract, falsifier=falsifier, device=device), falsifier)

    def _falsify(self, pool: Pool, job: Job, falsifier: Falsifier) -> None:
        if isinstance(falsifier, Harness):
            self._prove(pool, job, falsifier)
            return
        self._submit(pool, job, self._bodies.falsify(job, falsifier), self._limit(job, falsifier, falsifier.limit_s))

    def _prove(self, pool: Pool, job: Job, harness: Harness) -> None:
        self._submit(pool, job, self._bodies.prove(job, harness), proofs.hard_limit_s(harness))

    def _after_run(self, pool: Pool, contract: Contract, falsifier: Falsifier, device: str, *, small: bool) -> None:
        """Tries a predicate once its run has ended; the first that asks for a run starts it."""
        run = contract.run(falsifier.run or "")
        runs = self._known[contract.id].runs
        state = runs.get((run.name, device, small))
        if state is not None and state.trial is not None:
            self._predicate(pool, contract, falsifier, device, state, small=small)
            return
        if state is None:
            state = runs[run.name, device, small] = RunState(pool.scratch())
            job = Job(contract=contract, device=device, run=run, small=small)
            self._submit(pool, job, self._bodies.execute(job, falsifier, run, state.directory), run.limit_s)
        state.waiting.append(falsifier)

    def _predicate(
        self, pool: Pool, contract: Contract, falsifier: Falsifier, device: str, state: RunState, *, small: bool
    ) -> None:
        job = Job(contract=contract, falsifier=falsifier, device=device, small=small)
        if state.trial is not None and state.trial.ending is not Ending.HELD:
            self._judged(pool, job, falsifier, replace(state.trial, falsifier=falsifier.id))
            return
        self._submit(pool, job, self._bodies.judge(job, falsifier, state.directory), PREDICATE_LIMIT_S)

    def _mutants(self, pool: Pool, contract: Contract, falsifier: Falsifier) -> None:
        if not falsifier.kills and not told_apart(self.evidence(contract), falsifier):
            self._automatic(pool, contract, falsifier)
        for mutant in map(contract.mutant, falsifier.kills):
            if mutant.where in self.stale:
                continue
            self._try(pool, Job(contract=contract, falsifier=falsifier, device="cpu", mutant=mutant), falsifier)

    def _try(self, pool: Pool, job: Job, falsifier: Falsifier) -> None:
        """Tries a falsifier on a mutant."""
        if falsifier.run is None:
            self._falsify(pool, job, falsifier)
        else:
            self._mutated_run(pool, job, falsifier)

    def _automatic(self, pool: Pool, contract: Contract, falsifier: Falsifier) -> None:
        """Tries the next automatic mutant of what a falsifier that declares none reached; the first kill is enough."""
        known = self._known[contract.id]
        if falsifier.id not in known.automatic:
            subject, reached = self._bodies.subject(contract, falsifier), known.trials[falsifier.id, "cpu"].reached
            drawn = scope.some(self.project, subject, reached, self.options.seed, MOST_AUTOMATIC)
            known.automatic[falsifier.id] = [automatic.mutant for automatic in drawn]
            known.drawn[falsifier.id] = len(drawn)
        if known.automatic[falsifier.id]:
            mutant = known.automatic[falsifier.id].pop(0)
            self._try(pool, Job(contract=contract, falsifier=falsifier, device="cpu", mutant=mutant), falsifier)

    def _mutated_run(self, pool: Pool, job: Job, falsifier: Falsifier) -> None:
        """Executes the run on a mutant, at its small arguments, and tries the predicate, in one worker."""
        run = job.contract.run(falsifier.run or "")
        body = self._bodies.execute_and_judge(job, falsifier, run, pool.scratch())
        self._submit(pool, job, body, self._limit(job, falsifier, run.limit_s))

    def _limit(self, job: Job, falsifier: Falsifier, limit_s: float) -> float:
        """How long a trial may take: on a mutant that nobody wrote, as long as the code itself lets expect."""
        if falsifier.kills or job.mutant is None:
            return limit_s
        return min(limit_s, limit_on_mutant(self._known[job.contract.id].trials[falsifier.id, "cpu"].seconds))

    def _submit(self, pool: Pool, job: Job, body: dict[str, Any], limit_s: float) -> None:
        if self._cancelled:
            self._cancel(job)
            return
        self._total += 1
        pool.submit(Task(key=job, body=body, limit_s=limit_s, memory_mib=tasks.memory_mib(job.device)))

    def _began(self, task: Task) -> None:
        self._running[str(task.key)] = None
        self._tell()

    def _ended(self, pool: Pool, job: Job, reply: Reply) -> None:
        self._running.pop(str(job), None)
        self._done += 1
        self._tell()
        name = job.falsifier.id if job.falsifier is not None else ""
        found = trial(
            reply,
            falsifier=name,
            device=job.device,
            mutant=job.mutant.id if job.mutant is not None else None,
            seed=tasks.seed_of(name, self.options.seed),
        )
        if isinstance(job.falsifier, Harness):
            self._proved(pool, job, job.falsifier, proofs.within(job.falsifier, found))
        elif job.falsifier is not None:
            self._judged(pool, job, job.falsifier, found)
        elif job.run is not None:
            self._run_ended(pool, job, job.run, found)

    def _proved(self, pool: Pool, job: Job, harness: Harness, found: Trial) -> None:
        """What refutes a harness is believed once a worker of its own has seen it too."""
        if job.first is not None:
            self._judged(pool, job, harness, proofs.replayed(job.first, found))
        elif proofs.refutes(found) and not self.options.replay:
            self._prove(pool, replace(job, first=found), harness)
        else:
            self._judged(pool, job, harness, found)

    def _run_ended(self, pool: Pool, job: Job, run: Run, found: Trial) -> None:
        state = self._known[job.contract.id].runs[run.name, job.device, job.small]
        state.trial = found
        for falsifier in state.waiting:
            self._predicate(pool, job.contract, falsifier, job.device, state, small=job.small)

    def _judged(self, pool: Pool, job: Job, falsifier: Falsifier, found: Trial) -> None:
        """Keeps a trial, and starts what it calls for: a falsifier that found nothing must show that it could have."""
        known, device = self._known[job.contract.id], job.device
        if job.mutant is not None:
            known.mutants[falsifier.id, job.mutant.id] = found
            if falsifier.kills:
                self._fail_fast(pool, found.ending not in (Ending.REFUTED, Ending.RAISED))
            elif not killed(found):
                self._automatic(pool, job.contract, falsifier)
        elif job.small and found.ending is Ending.HELD:
            self._mutants(pool, job.contract, falsifier)
        elif job.small:
            known.mutants[falsifier.id, ""] = found
            self._fail_fast(pool, True)
        else:
            state = known.runs.get((falsifier.run or "", device, False))
            if state is not None and state.trial is not None:
                seconds, files = found.seconds + state.trial.seconds, found.files | state.trial.files
                found = replace(found, reached=state.trial.reached, seconds=seconds, files=files)
            known.trials[falsifier.id, device] = found
            if device == "cpu" and proofs.stands(falsifier, found) and self.selections[job.contract.id].mutants:
                self._show_teeth(pool, job.contract, falsifier)
            self._fail_fast(pool, found.ending not in GOOD)

    def _show_teeth(self, pool: Pool, contract: Contract, falsifier: Falsifier) -> None:
        if falsifier.run is None:
            self._mutants(pool, contract, falsifier)
        elif contract.run(falsifier.run).small is not None:
            self._after_run(pool, contract, falsifier, "cpu", small=True)

    def _fail_fast(self, pool: Pool, failed: bool) -> None:
        if failed and self.options.fail_fast and not self._cancelled:
            self._cancelled = True
            for task in pool.drop_pending():
                self._cancel(task.key)

    def _cancel(self, job: Job) -> None:
        known = self._known[job.contract.id]
        if job.falsifier is None:
            state = known.runs[job.run.name if job.run else "", job.device, job.small]
            waiting = list(state.waiting)
        else:
            waiting = [job.falsifier]
        for falsifier in waiting:
            lost = Trial(falsifier=falsifier.id, device=job.device, ending=Ending.CANCELLED, detail=STOPPED)
            if job.mutant is not None:
                known.mutants[falsifier.id, job.mutant.id] = replace(lost, mutant=job.mutant.id)
            elif not job.small:
                known.trials.setdefault((falsifier.id, job.device), lost)

    def _tell(self) -> None:
        if self.options.on_progress is not None:
            self.options.on_progress(Progress(done=self._done, total=self._total, running=tuple(self._running)))

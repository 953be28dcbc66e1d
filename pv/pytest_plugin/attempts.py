"""Tries claims in the workers that `pv validate` uses, one at a time, with one pool for a whole session of pytest."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pv.contract.claims import Falsifier
    from pv.contract.model import Contract
    from pv.contract.mutants import Mutant
    from pv.contract.names import Target
    from pv.engines.trial import Trial
    from pv.source.project import Project


@dataclass
class Attempts:
    """The workers of one session. subject and mutant: those of `--pv-subject` and `--pv-mutant`."""

    project: "Project"
    subject: "Target | None" = None
    mutant: "Mutant | None" = None
    _pool: Any = None

    def trial(self, contract: "Contract", claim: "Falsifier", device: str, mutant: "Mutant | None") -> "Trial":
        """Return the trial of a claim on the subject, or on a mutant of it. Raise `Unbound`, `UsageError`."""
        from pv.engines.code import Code
        from pv.engines.engine import Conditions
        from pv.engines.registry import engine_of
        from pv.workers import tasks
        from pv.workers.scheduler import Job, Scheduler

        engine, mutant = engine_of(claim), mutant or self.mutant
        scheduler = Scheduler[None](self._workers(contract), None)
        directory = scheduler.scratch()
        run = engine.run_of(contract, claim)
        execute = None if run is None else (run.small if run.small is not None else run.arguments)
        conditions = Conditions(device=device, mutant=mutant, directory=str(directory), execute=execute)
        code = Code(self.project, self.subject or contract.subject_of(claim))
        body, limit_s = tasks.attack(code, contract, claim, conditions), engine.limit_s(contract, claim, conditions)
        mutant_id = mutant.id if mutant is not None else None
        job = Job(key=None, body=body, limit_s=limit_s, claim=claim.id, label=claim.id, mutant=mutant_id)
        scheduler.submit(job)
        try:
            ((_, found),) = scheduler.trials()
        except BaseException:
            self.close()  # a time limit of pytest's leaves a worker that still runs this claim
            raise
        return found

    def absent(self, device: str) -> str:
        """Return why a device cannot be used here; "" if it can."""
        if device == "cpu":
            return ""
        if find_spec("torch") is None:
            return "torch is not installed"
        import torch

        return "" if torch.cuda.is_available() else f"no {device} device is visible to torch {torch.__version__}"

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.__exit__()
            self._pool = None

    def _workers(self, contract: "Contract") -> Any:
        from pv.workers import tasks
        from pv.workers.pool import Pool

        if self._pool is None:
            subjects = {self.subject or contract.subject_of(claim) for claim in contract.claims}
            self._pool = Pool(tasks.preload(self.project, [contract], subjects), 1).__enter__()
        return self._pool

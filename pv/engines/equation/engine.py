"""The engine of falsifiers with an `equation` and no `test`. It compares the subject with the equation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from pv.contract import sharing
from pv.contract.model import Contract, Falsifier
from pv.engines.code import ResolvedCode
from pv.engines.engine import Conditions, Engine, Worker
from pv.engines.equation import point, rules
from pv.engines.replay import refuse_faults, refuse_names
from pv.engines.rule import rules_of
from pv.engines.seed import seed_of
from pv.engines.trial import Trial, TrialStatus
from pv.equations.domain import Kind as VariableKind
from pv.equations.domain import free_sizes
from pv.equations.parse import parse_equations
from pv.equations.scalars import needs_torch
from pv.errors import UsageError

NO_TORCH = "{} needs PyTorch, which is not installed: run `pip install torch`"


@dataclass(frozen=True, slots=True, kw_only=True)
class EquationPayload:
    """The data of a task: compare the subject with an equation.

    Attributes:
        equation: The name of the equation.
        equations: All executable equations of the contract, since an equation may call others.
        examples: The number of examples.
        seed: The seed of the examples.
        replay: The example to replay, as JSON; "" to draw examples.
    """

    equation: str
    equations: Mapping[str, Mapping[str, Any]]  # Any, because cattrs cannot structure `object` in the worker
    examples: int
    seed: int
    replay: str


class EquationEngine(Engine[EquationPayload]):
    """Compares the subject with an executable equation on examples from the domains of its variables."""

    name = "equation"
    section = "falsifiers"
    payload_type = EquationPayload
    replays_arguments = True
    rules = rules_of(rules)

    def takes(self, claim: Falsifier) -> bool:
        return rules.is_compared(claim)

    def payload(
        self, code: ResolvedCode, contract: Contract, claim: Falsifier, conditions: Conditions
    ) -> EquationPayload:
        return EquationPayload(
            equation=claim.equation or "",
            equations=sharing.executable_equations(contract),
            examples=conditions.examples or claim.examples,
            seed=seed_of(claim.id, conditions.seed),
            replay=conditions.replay,
        )

    def attack(self, payload: EquationPayload, worker: Worker) -> dict[str, object]:
        part = _part_without_torch(payload.equation, payload.equations)
        if part:
            return {"status": TrialStatus.ERROR.value, "detail": NO_TORCH.format(part)}
        from pv.engines.equation.attack import attack
        from pv.engines.property.attack import Settings

        subject = worker.subject()
        worker.ready()
        settings = Settings(
            examples=payload.examples, seed=payload.seed, stop_at_first=worker.mutated, replay=payload.replay
        )
        return attack(
            payload.equations, payload.equation, subject, worker.device, settings, worker.failures, worker.stream
        )

    def preloads(self, contract: Contract, claim: Falsifier) -> tuple[str, ...]:
        modules = ("pv.engines.equation.attack",)
        if _part_without_torch(claim.equation or "", sharing.executable_equations(contract)):
            # Preload torch although it is missing, so that the failed import is reported.
            return ("torch", *modules)
        return modules

    def binding(self, claim: Falsifier) -> str:
        return f"equation {claim.equation}"

    def check_replay(self, replay: str, contract: Contract, claim: Falsifier) -> None:
        """Check names, sizes and domains. The worker checks `requires`, and lint checks the equation itself."""
        if not replay.startswith("{"):
            raise UsageError(f"invalid example for {claim.id}: expected the arguments of the equation as a JSON object")
        definitions, _ = parse_equations(sharing.executable_equations(contract))
        if claim.equation not in definitions:
            return
        variables = definitions[claim.equation].variables
        # An example has all arrays and numbers, and the sizes that do not follow from the shape of an array.
        names = dict.fromkeys(free_sizes(variables), "a size that no array has")
        names |= {name: "" for name, variable in variables.items() if variable.kind is not VariableKind.SIZE}
        example = json.loads(replay)
        refuse_names(example, names, replay, f"the equation {claim.equation}")
        refuse_faults(point.faults(variables, example), replay, f"an example of the equation {claim.equation}")

    def sensitivity(self, trial: Trial) -> str:
        mutants = trial.equation_mutants
        return f", {mutants.killed} of {mutants.total} equation mutants killed" if mutants is not None else ""


def _part_without_torch(name: str, equations: Mapping[str, Mapping[str, object]]) -> str:
    """Return the first part of an equation that needs PyTorch; "" if there is none, or if PyTorch is installed."""
    if find_spec("torch") is not None:
        return ""
    definitions, _ = parse_equations(equations)
    return needs_torch(definitions[name], definitions) if name in definitions else ""

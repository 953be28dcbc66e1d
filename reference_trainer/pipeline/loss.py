"""Create the loss of a distillation from its settings: the loss weights by step, and the hidden states to match."""

from __future__ import annotations

from reference_trainer.config.settings import Settings
from reference_trainer.data.text import Batches
from reference_trainer.distillation.features import FeatureMatching, new_matching
from reference_trainer.distillation.objective import TEMPERATURES
from reference_trainer.distillation.protocols import EvaluatedStudent, feature_teacher
from reference_trainer.distillation.universal import Frozen
from reference_trainer.plan.objective import WEIGHTS, Annealed, Objective

SEED_OFFSET = 2_000_003
"""Added to the seed when projections are initialised: their random numbers must differ from the student's."""


def objective(settings: Settings) -> Objective:
    """Return the arguments of the loss for all steps. Raise `SettingError` for an invalid annealing."""
    terms = settings.objective

    def annealed(name: str, bounds: tuple[float, float], warmup: int = terms.anneal_warmup) -> float | Annealed:
        start: float = getattr(terms, name)
        end: float | None = getattr(terms, f"{name}_end")
        return start if end is None else Annealed(start, end, terms.anneal, warmup, name=name, bounds=bounds)

    return Objective(
        temperature=annealed("temperature", TEMPERATURES, warmup=0),
        ce_weight=annealed("ce_weight", WEIGHTS),
        kd_weight=annealed("kd_weight", WEIGHTS),
        divergence=terms.divergence,
        beta=terms.beta,
        feature_weight=annealed("feature_weight", WEIGHTS),
    )


def matching(settings: Settings, student: EvaluatedStudent, teacher: Frozen, batches: Batches) -> FeatureMatching:
    """Return the hidden states to match, with projections if widths differ; empty if no step has a feature_weight.

    One batch is passed through both models to find the number and the widths of their hidden states.
    """
    terms = settings.objective
    if not (terms.feature_weight or terms.feature_weight_end):
        return FeatureMatching()
    batch = batches.batch(1, 1)
    states = [feature_teacher(model).outputs(batch).hidden_states for model in (student, teacher)]
    pairs = [pair.split(":") for pair in terms.feature_layers.split(",")]
    layers = [(int(of_student), int(of_teacher)) for of_student, of_teacher in pairs]
    return new_matching(*states, layers=layers, distance=terms.feature_distance, seed=settings.run.seed + SEED_OFFSET)

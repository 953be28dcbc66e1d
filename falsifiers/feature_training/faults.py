"""Wrong versions of public functions: the faults that the contract `feature-training` declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch


def _divided(original: Any, models: Any, named: Any, divisor: Callable[[Any], int]) -> Any:
    """Run a window whose features are divided by divisor(scored positions of a micro-batch)."""
    from reference_trainer.distillation.matching import FeatureMatching

    weight, given = models[3].feature_weight, named["features"]

    class Changed(FeatureMatching):
        def differentiate(self, student: Any, teacher: Any, scored: Any, scale: Any) -> Any:
            return FeatureMatching.differentiate(self, student, teacher, scored, weight / max(divisor(scored), 1))

    changed = Changed(layers=given.layers, distance=given.distance, projections=given.projections)
    return original(*models, **{**named, "features": changed})


def divided_by_its_own_tokens(original: Any, *models: Any, **named: Any) -> Any:
    """Divide the features of a micro-batch by its own scored tokens."""
    return _divided(original, models, named, lambda scored: int(scored.sum()))


def own_divisor_on_each_rank(original: Any, *models: Any, **named: Any) -> Any:
    """Divide the features of a rank by its own scored tokens, so that the ranks' means are averaged."""
    own = sum(int((batch.labels[:, 1:] != -100).sum()) for batch in models[2])
    return _divided(original, models, named, lambda scored: own)


def gradient_dropped(original: Any, *arguments: Any) -> Any:
    """Measure the distance, and minimise nothing of it."""
    distance, gradients = original(*arguments)
    return distance, [None] * len(gradients)


def all_positions_scored(original: Any, matching: Any, student: Any, teacher: Any, scored: Any, scale: Any) -> Any:
    """Compare the states of padding and prompts too."""
    return original(matching, student, teacher, torch.ones_like(scored), scale)


def logits_positions(original: Any, matching: Any, student: Any, teacher: Any, scored: Any, scale: Any) -> Any:
    """Take the mask of the labels before their shift, one position too late."""
    return original(matching, student, teacher, scored.roll(1, -1), scale)


def mean_reported(original: Any, *arguments: Any) -> Any:
    """Report the mean of a micro-batch in the place of its sum."""
    distance, gradients = original(*arguments)
    return distance / max(int(arguments[3].sum()), 1), gradients


def weight_forgotten(original: Any, rows: Any, weights: Any, **named: Any) -> Any:
    """Add the distance to the loss without its weight."""
    return original(rows, replace(weights, feature_weight=1.0 if weights.feature_weight else 0.0), **named)


def states_always_kept(original: Any, *arguments: Any, **named: Any) -> Any:
    """Ask for hidden states at a weight of 0 too."""
    teacher, student, batch, labels, weights = arguments
    return original(
        teacher, student, batch, labels, replace(weights, feature_weight=weights.feature_weight or 1e-30), **named
    )


class _AskedTwice:
    """A teacher that runs once for its logits and once more for its states."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.vocab_size, self.logits = inner, inner.vocab_size, inner.logits

    def outputs(self, batch: Any) -> Any:
        return replace(self.inner.outputs(batch), logits=self.inner.logits(batch))


def teacher_runs_twice(original: Any, teacher: Any, *rest: Any, **named: Any) -> Any:
    """Run the teacher a second time for its hidden states."""
    return original(_AskedTwice(teacher) if hasattr(teacher, "outputs") else teacher, *rest, **named)


def nothing_to_match_is_ignored(original: Any, teacher: Any, student: Any, *rest: Any, **named: Any) -> Any:
    """Leave out the features of models without hidden states."""
    batches, weights, *others = rest
    known = hasattr(teacher, "outputs") and hasattr(student, "forward_features")
    return original(
        teacher, student, batches, weights if known else replace(weights, feature_weight=0.0), *others, **named
    )


def weight_of_the_first_step(original: Any, objective: Any, step: int, total: int) -> Any:
    """Keep the first feature_weight in every step."""
    return replace(original(objective, step, total), feature_weight=original(objective, 1, total).feature_weight)


def mean_of_step_means(original: Any, self: Any, sums: Any, sequences: int) -> None:
    """Log the mean of the steps' features as (value, 1)."""
    changed = dict(sums)
    feature = sums.get("feature")
    if feature is not None and feature.count:
        changed["feature"] = type(feature)(feature.sum / feature.count, 1)
    original(self, changed, sequences)


def matched_by_its_start(original: Any, settings: Any, *models: Any) -> Any:
    """Prepare nothing for a weight that starts at 0."""
    return original(settings.model_copy(update={"feature_weight_end": None}), *models)


def projection_of_the_process(original: Any, *states: Any, seed: int, **named: Any) -> Any:
    """Draw the projection from the generator of the process."""
    return original(*states, seed=int(torch.randint(2**31, ())), **named)


def projection_frozen(original: Any, *states: Any, **named: Any) -> Any:
    """Leave the projection as it was drawn."""
    matching = original(*states, **named)
    for parameter in matching.parameters:
        parameter.requires_grad_(False)
    return matching


def projection_outside_the_optimizer(original: Any, parameters: Any, rate: float) -> Any:
    """Give the optimizer the student's parameters only: those of a whole decoder end with its head."""
    given = list(parameters)
    heads = [number for number, each in enumerate(given) if each.shape[0] == 256]
    return original(given[: heads[-1] + 1], rate)


def projection_exported(original: Any, decoder: Any, directory: Any, manifest: Any, **rest: Any) -> None:
    """Write one more tensor beside the student's."""
    more = {**decoder.state_dict(), "projection.weight": torch.zeros(1)}
    original(SimpleNamespace(config=decoder.config, state_dict=lambda: more), directory, manifest, **rest)


def layers_clamped(original: Any, student: Any, teacher: Any, *, layers: Any, **named: Any) -> Any:
    """Take the nearest layer for one that does not exist."""

    def nearest(layer: int, states: Any) -> int:
        return max(-len(states), min(layer, len(states) - 1))

    pairs = [(nearest(i, student), nearest(j, teacher)) for i, j in layers]
    return original(student, teacher, layers=pairs, **named)


def keywords_not_passed(original: Any, self: Any, module: Any, vocab_size: int) -> None:
    """Pass tokens alone to a module whose forward names no other parameter."""
    import inspect

    from torch import nn

    class TokensAlone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, tokens: Any) -> Any:
            return self.inner(tokens)

    names = inspect.signature(module.forward).parameters
    original(self, module if "output_hidden_states" in names else TokensAlone(), vocab_size)

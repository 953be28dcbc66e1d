"""Wrong versions of public functions of the trainer, for mutants."""

from __future__ import annotations

from typing import Any

UNSCORED = -100


def tau_squared_in_the_gradient(original: Any, *tensors: Any, temperature: float, kd_weight: float, **rest: Any) -> Any:
    """Return the gradient with the factor tau^2 instead of tau."""
    return original(*tensors, temperature=temperature, kd_weight=kd_weight * temperature, **rest)


def gradient_in_float32(original: Any, *tensors: Any, **settings: Any) -> Any:
    """Round the closed form to float32 before the comparison."""
    from reference_trainer.distillation.losses import kd_logit_gradient

    closed_form = settings.pop("gradient", kd_logit_gradient)
    return original(*tensors, **settings, gradient=lambda *args, **rest: closed_form(*args, **rest).float().double())


def compared_with_itself(original: Any, *tensors: Any, **settings: Any) -> float:
    """Compare the expected gradient with itself."""
    settings.pop("gradient", None)
    return float(original(*tensors, **settings))


def weights_swapped_in_the_check(original: Any, *tensors: Any, **settings: Any) -> Any:
    """Compare with the gradient of the exchanged weights."""
    from reference_trainer.distillation.losses import kd_logit_gradient

    def exchanged(*args: Any, ce_weight: float, kd_weight: float, **rest: Any) -> Any:
        return kd_logit_gradient(*args, ce_weight=kd_weight, kd_weight=ce_weight, **rest)

    return original(*tensors, **settings, gradient=exchanged)


def gradient_always_passes(original: Any, result: Any, difference: float, *rest: Any) -> Any:
    """Report the difference, but do not check it."""
    return original(result, 0.0, *rest)


def teacher_is_the_student(original: Any, *arguments: Any, **rest: Any) -> Any:
    """Compare with the student's logits as the teacher's."""
    compare = rest.pop("compare")
    return original(*arguments, compare=lambda s, t, y, **weights: compare(s, s, y, **weights))


def labels_of_no_seed(original: Any, place: Any, shape: Any, seed: int, **rest: Any) -> Any:
    """Draw the labels from the global generator."""
    compare = rest.pop("compare")

    def redrawn(student: Any, teacher: Any, labels: Any, **weights: Any) -> Any:
        return compare(student, teacher, labels.random_(0, shape[2]), **weights)

    return original(place, shape, seed, compare=redrawn)


def computed_on_the_cpu(original: Any, place: Any, *rest: Any, **settings: Any) -> Any:
    """Ignore the device."""
    import torch

    return original(torch.device("cpu"), *rest, **settings)


def banned_tokens_not_masked(original: Any, student: Any, teacher: Any, labels: Any, **settings: Any) -> Any:
    """Return NaN if a scored logit of -inf takes part in another divergence than forward KL."""
    scored = labels.long() != UNSCORED
    banned = any(bool(logits[scored].isinf().any()) for logits in (student, teacher))
    if banned and settings["kd_weight"] and settings.get("divergence", "forward_kl") != "forward_kl":
        return float("nan")
    return original(student, teacher, labels, **settings)


def labels_compared_in_their_dtype(original: Any, student: Any, teacher: Any, labels: Any, **settings: Any) -> Any:
    """Leave out of the reference the labels that have the bits of an unscored one in their dtype."""
    from reference_trainer.distillation.losses import kd_logit_gradient

    def of_all(student: Any, teacher: Any, compared: Any, **rest: Any) -> Any:
        return kd_logit_gradient(student, teacher, labels.to(student.device).long(), **rest)

    compared = labels.long().masked_fill(labels == UNSCORED, UNSCORED)
    return original(student, teacher, compared, gradient=settings.pop("gradient", of_all), **settings)

"""Claims about clipping: the gradient of the whole window is scaled down, once."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from pv.equations.causes import difference, ratio
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.claims.cases import equal, job
from pv.suites.training_loop.claims.checks import (
    Case,
    Cases,
    judge,
    refute,
    require,
    require_forwards,
    require_steps,
)
from pv.suites.training_loop.claims.scaler import require_scale
from pv.suites.training_loop.mistakes import clipped_early, scale_of
from pv.suites.training_loop.numbers import equal_to
from pv.suites.training_loop.oracle import norm, sums
from pv.suites.training_loop.run import Run


def falsify_clipping_scales_the_window(bench: Bench) -> None:
    cases: Cases = {}
    # One limit that always clips, and one that never does.
    for accumulate, limit in product((1, 2), (0.1, 3.0)):
        run = bench.run(job(equal(8), accumulate=accumulate, clip=limit, epochs=2))
        require_forwards(run)
        cases |= {f"clip {limit:g}, accumulation {accumulate}": _step_case(bench, run)}
        for k, step in enumerate(run.steps):
            right = sums(run.before(k), run.named(step.names))
            length = norm(right.gradient) / right.tokens
            scale = min(1.0, limit / length) / right.tokens
            off = difference(step.gradient, {name: tensor * scale for name, tensor in right.gradient.items()})
            why = (
                f"a gradient of norm {length:.6g}, clipped at {limit:g}, arrives with norm {norm(step.gradient):.6g}, "
                f"and differs by {off:.2g} of its largest element"
            )
            plain = {name: tensor / right.tokens for name, tensor in right.gradient.items()}
            causes = causes_of_clipping(step.gradient, plain, limit, right.tokens, scale_of(run, k))
            if difference(step.gradient, _clipped_in_parts(run, k, limit)) < 1e-4:
                causes = ("the sum of the micro-batches' gradients, clipped after each of them",)
            cases[f"clip {limit:g}, accumulation {accumulate}, step {k + 1}"] = (
                Case(run, why, causes) if off > 1e-4 else Case(run)
            )
    judge(cases)


def _step_case(bench: Bench, run: Run) -> Case:
    """Return whether a run with a limit takes as many steps as one without: a long gradient is clipped, not dropped."""
    limit, free = run.job.clip, bench.run(replace(run.job, clip=None, directory=Path()))
    require_steps(free)
    if len(run.steps) >= len(free.steps):
        return Case(run)
    return Case(
        run,
        f"{len(run.steps)} steps are taken with a limit of {limit:g}, and {len(free.steps)} without one",
        ("no step where the gradient is longer than the limit, or than a multiple of it",),
    )


def _clipped_in_parts(run: Run, k: int, limit: float) -> Mapping[str, Tensor]:
    """Return the gradient at index k of a loop that clips what it has added up after each micro-batch."""
    parts = [sums(run.before(k), run.named(batch)) for batch in run.steps[k].batches]
    tokens, total = sum(part.tokens for part in parts), dict.fromkeys(parts[0].gradient, torch.zeros(()))
    for part in parts:
        # What a loop does that calls `clip_grad_norm_` after each backward, before the step.
        total = {name: tensor + part.gradient[name] / tokens for name, tensor in total.items()}
        total = {name: tensor * min(1.0, limit / norm(total)) for name, tensor in total.items()}
    return total


def causes_of_clipping(
    actual: Mapping[str, Tensor | None],
    plain: Mapping[str, Tensor],
    limit: float,
    tokens: int,
    scale: float | None = None,
) -> tuple[str, ...]:
    """Return the known mistakes of clipping that give exactly the gradient `actual`.

    scale: of the gradient scaler, where the gradient is multiplied by one.
    """

    def times(by: float) -> dict[str, Tensor]:
        return {name: tensor * by for name, tensor in plain.items()}

    mistakes = {
        "clipped before it is divided by the scored tokens": times(min(1.0, limit / (norm(plain) * tokens))),
        "the gradient before the clipping: it is clipped after the step, or not at all": plain,
        "clipped by its largest element, and not by its Euclidean norm": _clipped_by_largest(plain, limit),
        "clipped element by element": {name: tensor.clamp(-limit, limit) for name, tensor in plain.items()},
        "clipped tensor by tensor, each by its own norm": {
            name: tensor * min(1.0, limit / (norm({name: tensor}) or 1.0)) for name, tensor in plain.items()
        },
    }
    if scale is not None:
        mistakes[clipped_early(scale)] = times(min(1.0, limit / (norm(plain) * scale)))
        mistakes[f"not divided by the scale of the gradient scaler, {scale:g}"] = times(scale)
    exact = tuple(name for name, mistaken in mistakes.items() if difference(actual, mistaken) < 1e-4)
    return exact or _left_out(actual, plain)


def _clipped_by_largest(plain: Mapping[str, Tensor], limit: float) -> dict[str, Tensor]:
    largest = max(float(tensor.abs().max()) for tensor in plain.values())
    return {name: tensor * min(1.0, limit / largest) for name, tensor in plain.items()}


def _left_out(actual: Mapping[str, Tensor | None], plain: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the parameters whose gradients are not scaled while the gradients of the others are."""
    ratios = {name: ratio({name: actual.get(name)}, {name: tensor}, 1e-4) for name, tensor in plain.items()}
    left = [name for name, by in ratios.items() if by is not None and abs(by - 1) < 1e-4]
    # Every tensor must be a multiple of its right gradient, else it is another mistake.
    if not left or None in ratios.values():
        return ()
    return (f"clipped, but for {', '.join(left)}, as where only some are handed to it",)


def falsify_clipping_of_unscaled_gradients(bench: Bench) -> None:
    cases: Cases = {}
    for accumulate, limit in product((1, 2), (0.3, None)):
        run = bench.run(job(equal(8), accumulate=accumulate, clip=limit, scaler=True))
        require_forwards(run)
        require_scale(bench)
        if limit is not None:
            cases |= {f"clip {limit}, accumulation {accumulate}": _step_case(bench, run)}
        for k, step in enumerate(run.steps):
            right = sums(run.before(k), run.named(step.names))
            length, actual = norm(right.gradient) / right.tokens, norm(step.gradient)
            plain = {name: tensor / right.tokens for name, tensor in right.gradient.items()}
            right_scale = min(1.0, (limit or math.inf) / length)
            off = difference(step.gradient, {name: tensor * right_scale for name, tensor in plain.items()})
            causes = causes_of_clipping(step.gradient, plain, limit or math.inf, right.tokens, scale_of(run, k))
            fault = f"a gradient of norm {length:.6g}, clipped at {limit}, arrives with norm {actual:.6g}"
            cases[f"clip {limit}, accumulation {accumulate}, step {k + 1}"] = (
                Case(run, fault, causes) if off > 1e-4 else Case(run)
            )
    judge(cases)


def falsify_logged_norm_is_before_clipping(bench: Bench) -> None:
    run = bench.run(job(equal(8), accumulate=2, clip=0.3))
    require_forwards(run)
    require(run.logs, "`logs`", "where the loop logs no norm, name `norm` as missing in `features`")
    actual, cases = {int(row["step"]): row["norm"] for row in run.logs if "norm" in row}, Cases()
    if sorted(actual) != [*range(1, len(run.steps) + 1)]:
        refute(f"norms are logged for the steps {sorted(actual)}, not for 1 to {len(run.steps)}", run)
    for k, step in enumerate(run.steps, 1):
        right = sums(run.before(k - 1), run.named(step.names))
        expected = norm(right.gradient) / right.tokens
        mistakes = {
            "the norm after clipping": norm(step.gradient),
            "the norm of the gradient before it is divided by the tokens": norm(right.gradient),
            "the norm of the last micro-batch's part": _part_norm(run, k - 1, right.tokens),
            "the square of the norm": expected**2,
        }
        mistakes |= {f"the norm of {name} alone": norm({name: g}) / right.tokens for name, g in right.gradient.items()}
        if scale := scale_of(run, k - 1):
            mistakes[f"the norm before it is divided by the scale of the gradient scaler, {scale:g}"] = expected * scale
        wrong = abs(actual[k] - expected) > 1e-5 * max(1.0, expected)
        why = f"{actual[k]:.6g} is logged, the norm is {expected:.6g}" if wrong else ""
        cases[f"step {k}"] = Case(run, why, equal_to(actual[k], mistakes, 1e-5) if wrong else ())
    judge(cases)


def _part_norm(run: Run, k: int, tokens: int) -> float:
    """Return the norm of the part that the last micro-batch of the step at index k has in its gradient."""
    return norm(sums(run.before(k), run.named(run.steps[k].batches[-1])).gradient) / tokens

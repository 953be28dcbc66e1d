"""The suite `distillation-loss`: the correct loss in float64, the bench of a loss, and the claims.

Shape letters: B batch, L length, V vocabulary.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pv.suites.bench import CallableBench, judge, parameters_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """The arguments of a loss.

    Attributes:
        student: Logits [B, L, V].
        teacher: Logits [B, L, V].
        keep: The positions that count, bool [B, L].
        temperature: The temperature.
    """

    student: Tensor
    teacher: Tensor
    keep: Tensor
    temperature: float = 1.0

    def only(self, sequences: slice) -> "Case":
        """Return the case with some of its sequences."""
        parts = {name: getattr(self, name)[sequences] for name in ("student", "teacher", "keep")}
        return replace(self, **parts)


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The convention of a loss, as its attributes declare it.

    Attributes:
        divergence: `forward` for KL(teacher || student), or `reverse`.
        reduction: `mean` over the positions that count, `batchmean` over sequences, or `sum`.
        factor: `T^2` or `1`.
    """

    divergence: str = "forward"
    reduction: str = "mean"
    factor: str = "T^2"

    def divisor(self, case: Case) -> float:
        """Return the divisor of the sum over positions."""
        counts = {"mean": int(case.keep.sum()), "batchmean": len(case.keep), "sum": 1}
        return float(counts[self.reduction])

    def loss(self, case: Case) -> Tensor:
        """Return the correct loss of a case in float64."""
        return self.reduce(case, position_divergences(case, self.divergence))

    def reduce(self, case: Case, nats_BL: Tensor) -> Tensor:
        """Return the loss of a case from the divergence of each position [B, L]."""
        factor = case.temperature**2 if self.factor == "T^2" else 1.0
        return nats_BL[case.keep].sum() * factor / self.divisor(case)


def position_divergences(case: Case, divergence: str) -> Tensor:
    """Return the divergence of each position in nats [B, L], in float64."""
    log_p, log_q = ((logits.double() / case.temperature).log_softmax(-1) for logits in (case.teacher, case.student))
    return kl(log_p, log_q) if divergence == "forward" else kl(log_q, log_p)


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return KL(p || q) in nats over the last dimension."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def _wrong_divergences(case: Case) -> dict[str, Tensor]:
    """Return wrong divergences of each position [B, L], by the name of the mistake."""
    s, t = case.student.double(), case.teacher.double()
    log_p, log_q = (t / case.temperature).log_softmax(-1), (s / case.temperature).log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    return {
        "KL(student || teacher)": kl(log_q, log_p),
        "KL(teacher || student)": kl(log_p, log_q),
        "the cross-entropy, without the teacher's entropy": -(p * log_q).sum(-1),
        "a softmax of the softmax in both": kl(p.log_softmax(-1), q.log_softmax(-1)),
        "a softmax of the softmax in the student": kl(log_p, q.log_softmax(-1)),
        "a softmax of the softmax in the teacher": kl(p.log_softmax(-1), log_q),
        "the student's softmax without a logarithm": (p * (log_p - q)).sum(-1),
        "probabilities that are read as logarithms": (p.exp() * (p - log_q)).sum(-1),
        "the temperature in the student only": kl(t.log_softmax(-1), log_q),
        "the temperature in the teacher only": kl(log_p, s.log_softmax(-1)),
        "the softmax over positions": kl(*((x / case.temperature).log_softmax(1) for x in (t, s))),
    }


def _mistakes(case: Case, convention: Convention) -> dict[str, Tensor]:
    """Return the losses that known mistakes give, by the name of the mistake."""
    nats_BL = position_divergences(case, convention.divergence)
    mistakes = {name: convention.reduce(case, wrong_BL) for name, wrong_BL in _wrong_divergences(case).items()}
    for name, keep in (
        ("the loss of every position", torch.ones_like(case.keep)),
        ("masked one position late", case.keep.roll(1, 1)),
    ):
        mistakes[name] = convention.reduce(replace(case, keep=keep), nats_BL)
    means = [convention.loss(case.only(slice(k, k + 1))) for k in range(len(case.keep)) if case.keep[k].any()]
    return {**mistakes, "the mean of the means of sequences": torch.stack(means).mean()}


def _factors(case: Case) -> dict[str, float]:
    """Return usual wrong factors of a loss, by formula. N is the number of positions that count."""
    (b, length, v), n, t = case.student.shape, int(case.keep.sum()), case.temperature
    factors = {"T^2": t**2, "T": t, "T^4": t**4, "V": v, "N": n, "N*V": n * v, "B": b, "N/B": n / b}
    factors |= {"B*L/N": b * length / n, "B*L*V/N": b * length * v / n, "ln 2": math.log(2)}
    return factors | {f"1/({name})" if len(name) > 3 else f"1/{name}": 1 / factor for name, factor in factors.items()}


def explain(actual: float, case: Case, convention: Convention) -> str:
    """Return "; it is ..." with the known mistake or the factor that gives the actual loss.

    At most two are named. The result is "" if there is none, or if the loss is correct.
    """
    correct = float(convention.loss(case))
    if near(actual, correct):
        return ""
    causes = [name for name, wrong in _mistakes(case, convention).items() if near(actual, float(wrong))]
    factors = [f"{name} times that" for name, factor in _factors(case).items() if near(actual, correct * factor)]
    # Several explanations may fit by chance, so at most two are named.
    return f"; it is {' or '.join((causes or factors)[:2])}" if causes or factors else ""


def near(one: float, other: float) -> bool:
    """Return whether two losses are equal up to rounding."""
    # The loss is computed at least in float32. Then sums of 70 terms have a relative error below 1e-5.
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-6)


B, L, V = 2, 5, 7
"""The shape of the logits of a case."""
NAMES = {
    "labels": ("labels", "targets", "target", "y"),
    "mask": ("mask", "loss_mask", "attention_mask"),
    "temperature": ("temperature", "tau", "T", "temp"),
    "hard_weight": ("ce_weight", "hard_weight", "alpha_ce"),
    "soft_weight": ("kd_weight", "soft_weight", "kl_weight", "alpha_kd"),
    "alpha": ("alpha", "kd_alpha", "lambda_", "kd_ratio"),
}
WRITE = """cannot call {name}: {why}. Write a function of logits [B, L, V], or [N, V], and pass it:

    def loss(student, teacher, labels, temperature):  # positions with label -100, or with `mask` 0, do not count
        return {name}(...)  # a scalar

    loss.divergence = "forward"  # KL(teacher || student), or "reverse"
    loss.reduction = "mean"  # over the positions that count, or "batchmean", "sum"
    loss.factor = "T^2"  # or "1"

These are the defaults. Parameters may have other usual names:
{names}"""


class Bench(CallableBench):
    """A loss of two logits. Its attributes `divergence`, `reduction` and `factor` are explained in `WRITE`.

    Attributes:
        teacher_first: Whether the teacher's logits are the first argument.
        arguments: The name of the parameter for each role, a key of `NAMES`; "" if there is none.
        alpha: The value of the parameter `alpha` with which the subject returns the soft loss alone.
        flat: Whether the subject takes logits [N, V], not [B, L, V].
        temperatures: The temperatures to try.
    """

    write, names = WRITE, NAMES

    def __init__(self, make: Callable[..., object]) -> None:
        super().__init__(make)
        parameters = list(parameters_of(make).values()) if callable(make) else []
        logits = [parameter.name for parameter in parameters[:2]]
        if len(logits) < 2:
            self.refuse("it is not a function of two logits")
        self.teacher_first = "teacher" in logits[0] and "teacher" not in logits[1]
        free = [parameter for parameter in parameters[2:] if parameter.name not in getattr(make, "keywords", {})]
        # Names may end with the letters of a shape: `labels_BL` is the parameter `labels`.
        without_shapes = {re.sub("_[A-Z]+$", "", parameter.name): parameter for parameter in free}
        roles = self.roles_of(without_shapes)
        self.arguments = {role: without_shapes[name].name if name else "" for role, name in roles.items()}
        self.refuse_unknown({parameter.name: parameter for parameter in free}, self.arguments)
        self.convention = self._convention()
        self.alpha, self.flat = 1.0, False
        self._find_shape_and_alpha()
        takes_mask = self.arguments["labels"] or self.arguments["mask"]
        self.set_features({"mask": "" if takes_mask else "it takes no labels and no mask", "detach": ""})
        self.temperatures = (3.0, 1.0, 0.5) if self.arguments["temperature"] else (1.0,)

    def case(self, seed: int, temperature: float = 1.0, *, masked: bool = False, scale: float = 2.0) -> Case:
        """Return a random case that the loss can take.

        If the loss takes logits [N, V], every sequence has one position. See `draw_case` for the arguments.
        """
        case = draw_case(seed, temperature, masked=masked and "mask" not in self.lacks, scale=scale)
        if not self.flat:
            return case
        parts = {name: getattr(case, name).flatten(0, 1)[:, None] for name in ("student", "teacher", "keep")}
        return replace(case, **parts)

    def loss(self, case: Case) -> Tensor:
        """Return the loss of a case, and record the case as used."""
        self.used.append(case)
        return self._call(case)

    def gradient(self, case: Case) -> tuple[float, Tensor]:
        """Return the loss, and its gradient with respect to the student's logits."""
        student = case.student.clone().requires_grad_()
        loss = self.loss(replace(case, student=student))
        (gradient,) = torch.autograd.grad(loss, student)
        return float(loss.detach()), gradient

    def _call(self, case: Case) -> Tensor:
        """Call the subject with the arguments that it takes. Raise TypeError unless it returns a scalar tensor."""
        random = torch.Generator().manual_seed(0)
        # The labels only determine which positions count: -100 is ignored, as in PyTorch.
        labels = torch.randint(case.student.shape[-1], case.keep.shape, generator=random).where(case.keep, -100)
        values: dict[str, Tensor | float] = {"labels": labels, "mask": case.keep, "temperature": case.temperature}
        # Only the soft loss is under test, so the weight of the hard loss is 0.
        values |= {"hard_weight": 0.0, "soft_weight": 1.0, "alpha": self.alpha}
        parts = [case.teacher, case.student] if self.teacher_first else [case.student, case.teacher]
        if self.flat:
            parts = [part.flatten(0, 1) for part in parts]
            values |= {"labels": labels.flatten(), "mask": case.keep.flatten()}
        loss = self.subject(*parts, **{name: values[role] for role, name in self.arguments.items() if name})
        loss = loss[0] if isinstance(loss, tuple) else loss
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise TypeError(f"it returned {type(loss).__name__}, not a scalar tensor")
        return loss.reshape(())

    def _find_shape_and_alpha(self) -> None:
        """Find the shape of logits that the subject takes, and the alpha for which it returns the soft loss."""
        case = draw_case(0, 1.0)
        for self.flat in (False, True):
            try:
                self._call(case)
                break
            except Exception as error:
                if self.flat:
                    self.refuse(f"{type(error).__name__}: {error}", error)
        other = replace(case, teacher=draw_case(1, 1.0).teacher)
        # `alpha` is the weight of the hard or of the soft loss. If the teacher has no influence on the loss with
        # alpha = 1, it is the weight of the hard loss.
        if self.arguments["alpha"] and torch.equal(self._call(case), self._call(other)):
            self.alpha = 0.0

    def _convention(self) -> Convention:
        """Return the convention that the subject declares. Raise `CannotCall` for an unknown value."""
        convention = {name: getattr(self.subject, name, value) for name, value in vars(Convention()).items()}
        possible = {
            "divergence": ("forward", "reverse"),
            "reduction": ("mean", "batchmean", "sum"),
            "factor": ("T^2", "1"),
        }
        for name, choices in possible.items():
            if convention[name] not in choices:
                self.refuse(f"unknown {name} {convention[name]!r} (choose from {', '.join(choices)})")
        return Convention(**convention)


def bench(subject: Callable[..., object], directory: Path | None) -> Bench:
    """Return the bench of a function; raise `CannotCall` if the suite cannot call it."""
    return Bench(subject)


def draw_case(seed: int, temperature: float, *, masked: bool = False, scale: float = 2.0) -> Case:
    """Return a random case.

    Args:
        seed: The seed of the random numbers.
        temperature: The temperature.
        masked: Whether some positions do not count. Their number may differ between the sequences.
        scale: The standard deviation of the logits.
    """
    random = torch.Generator().manual_seed(seed)
    student, teacher = (scale * torch.randn(B, L, V, generator=random) for _ in range(2))
    keep = torch.ones(B, L, dtype=torch.bool)
    if masked:
        keep[0, 1:], keep[1, seed % L] = torch.rand(L - 1, generator=random) < 0.5, False
    return Case(student=student, teacher=teacher, keep=keep, temperature=temperature)


SEEDS = st.integers(0, 99)
# Dtypes and scales of large logits. float16 has no numbers above 65504, so exp overflows above 11.
LARGE = ((torch.float32, 1e4), (torch.bfloat16, 1e4), (torch.float16, 1e3))


def close(one: Tensor, other: Tensor) -> bool:
    """Return whether two gradients are equal up to rounding."""
    # The tolerance is relative to the largest element, since small elements are differences of similar probabilities.
    return torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-4 * float(other.abs().max()) + 1e-7)


def check_value(bench: Bench, case: Case, actual: float) -> None:
    """Assert that a loss is correct for a case."""
    correct, (b, length, v) = float(bench.convention.loss(case)), case.student.shape
    masked = "" if case.keep.all() else f", {int(case.keep.sum())} positions that count"
    fault = (
        f"with T = {case.temperature}, B = {b}, L = {length}, V = {v}{masked}, the loss is {actual:.6g}; the correct "
        f"loss for {', '.join(vars(bench.convention).values())} is {correct:.6g}"
    )
    judge(near(actual, correct), fault, explain(actual, case, bench.convention))


def check_gradient(bench: Bench, case: Case, actual: Tensor) -> None:
    """Assert that the gradient of a loss with respect to the student's logits is correct for a case."""
    student = case.student.double().requires_grad_()
    (expected,) = torch.autograd.grad(bench.convention.loss(replace(case, student=student)), student)
    worst = (actual.double() - expected).abs().argmax()
    one, other = float(actual.flatten()[worst]), float(expected.flatten()[worst])
    # The least-squares factor. If the gradient is a multiple of the correct gradient, a constant is wrong.
    ratio = float((actual.double() * expected).sum() / (expected * expected).sum())
    cause = f"; the whole gradient is {ratio:.4g} times the correct one" if close(actual, expected * ratio) else ""
    fault = f"with T = {case.temperature}, the gradient of a logit is {one:.4g}, not {other:.4g}"
    judge(close(actual, expected), fault, cause)


@given(seed=SEEDS)
def falsify_value(bench: Bench, seed: int) -> None:
    for temperature in bench.temperatures:
        case = bench.case(seed, temperature)
        check_value(bench, case, float(bench.loss(case).detach()))


@given(seed=SEEDS)
def falsify_zero_on_itself(bench: Bench, seed: int) -> None:
    for temperature in bench.temperatures:
        case = bench.case(seed, temperature, masked=True)
        equal_logits = replace(case, teacher=case.student)
        loss, gradient = bench.gradient(equal_logits)
        fault = f"with T = {temperature} and equal logits, the loss is {loss:.6g}"
        judge(abs(loss) < 1e-5, fault, explain(loss, equal_logits, bench.convention))
        largest = float(gradient.abs().max())
        assert largest < 1e-5, f"with T = {temperature} and equal logits, a gradient is {largest:.4g}"


@given(seed=SEEDS)
def falsify_gradient(bench: Bench, seed: int) -> None:
    for temperature in bench.temperatures:
        case = bench.case(seed, temperature, masked=True)
        check_gradient(bench, case, bench.gradient(case)[1])


@given(seed=SEEDS)
def falsify_teacher_is_fixed(bench: Bench, seed: int) -> None:
    case = bench.case(seed, bench.temperatures[0])
    student, teacher = case.student.clone().requires_grad_(), case.teacher.clone().requires_grad_()
    bench.loss(replace(case, student=student, teacher=teacher)).backward()
    largest = 0.0 if teacher.grad is None else float(teacher.grad.abs().max())
    assert not largest, f"the teacher's logits have a gradient of up to {largest:.4g}; detach them"


@given(seed=SEEDS, constant=st.sampled_from((3.0, -40.0)))
def falsify_constant_of_a_row(bench: Bench, seed: int, constant: float) -> None:
    case = bench.case(seed, bench.temperatures[0])
    expected, gradient = bench.gradient(case)
    for name in ("student", "teacher"):
        # Only every other row is shifted: the same shift of all rows could cancel between rows.
        shifted = getattr(case, name) + constant * (torch.arange(case.keep.numel()) % 2).reshape(*case.keep.shape, 1)
        actual, shifted_gradient = bench.gradient(replace(case, **{name: shifted}))
        change = f"{constant} added to all logits of every other row of the {name} changes"
        assert near(actual, expected) or abs(actual - expected) < 1e-4 * abs(expected) + 1e-5, (
            f"{change} the loss from {expected:.6g} to {actual:.6g}"
        )
        assert close(shifted_gradient, gradient), (
            f"{change} the gradient by {float((shifted_gradient - gradient).abs().max()):.4g}"
        )


@given(seed=SEEDS)
def falsify_large_logits(bench: Bench, seed: int) -> None:
    for dtype, scale in LARGE:
        case = bench.case(seed, scale=scale / 2)
        case = replace(case, student=case.student.to(dtype), teacher=case.teacher.to(dtype))
        loss, gradient = bench.gradient(case)
        expected = float(bench.convention.loss(case))
        prefix = f"with logits of up to {float(case.student.abs().max()):.0f} in {dtype}"
        # In bfloat16, the distance between numbers near 1e4 is 64, so the loss is exact only to some percent.
        assert abs(loss - expected) < 0.05 * expected, f"{prefix}, the loss is {loss:.6g}, not {expected:.6g}"
        assert gradient.isfinite().all(), f"{prefix}, a gradient is {float(gradient[~gradient.isfinite()][0])}"


@given(seed=SEEDS)
def falsify_mask(bench: Bench, seed: int) -> None:
    case = bench.case(seed, bench.temperatures[0], masked=True)
    loss, gradient = bench.gradient(case)
    check_value(bench, case, loss)
    masked = gradient[~case.keep].abs()
    assert not masked.any(), f"a position that does not count has a gradient of {float(masked.max()):.4g}"
    for name in ("student", "teacher"):
        other = getattr(case, name).where(case.keep[..., None], 50.0 * torch.arange(case.student.shape[-1]))
        actual = bench.gradient(replace(case, **{name: other}))[0]
        assert near(actual, loss), (
            f"other logits of the {name} at positions that do not count change the loss from {loss:.6g} to {actual:.6g}"
        )


@given(seed=SEEDS)
def falsify_split(bench: Bench, seed: int) -> None:
    case = bench.case(seed, bench.temperatures[0], masked=True)
    parts = [case.only(sequences) for sequences in (slice(0, 1), slice(1, None))]
    weights = [bench.convention.divisor(part) for part in parts]
    losses = [float(bench.loss(part).detach()) for part in parts]
    whole, total = float(bench.loss(case).detach()), bench.convention.divisor(case)
    # A mean over positions is the mean of the parts, weighted by their numbers of positions.
    expected = sum(loss * weight for loss, weight in zip(losses, weights, strict=True)) / total
    cause = "; the whole has their unweighted mean" if near(whole, sum(losses) / 2) else ""
    fault = (
        f"parts with the weights {weights} have the losses {losses[0]:.6g} and {losses[1]:.6g}, the whole has "
        f"{whole:.6g}, not {expected:.6g}"
    )
    judge(near(whole, expected), fault, cause)

"""Call a loss of student and teacher logits, and find its argument names, shape and convention."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pv.suites.bench import CallableBench, parameters_of
from pv.suites.distillation_loss.oracle import Case, Convention

B, L, V = 2, 5, 7
NAMES = {
    "labels": ("labels", "targets", "target", "y"),
    "mask": ("mask", "loss_mask", "attention_mask"),
    "temperature": ("temperature", "tau", "T", "temp"),
    "off": ("ce_weight", "hard_weight", "alpha_ce"),
    "on": ("kd_weight", "soft_weight", "kl_weight", "alpha_kd"),
    "alpha": ("alpha", "kd_alpha", "lambda_", "kd_ratio"),
}
WRITE = """cannot call {name}: {why}. Write a function of logits [B, L, V], or [N, V], and pass it:

    def loss(student, teacher, labels, temperature):  # labels of -100, or a `mask` of 0, do not count
        return {name}(...)  # a scalar

    loss.divergence = "forward"  # KL(teacher || student), or "reverse"
    loss.reduction = "mean"  # over the positions that count, or "batchmean", "sum"
    loss.factor = "T^2"  # or "1"

These are the defaults. Of each parameter, other names are known, too:
{names}"""


class Bench(CallableBench):
    """A function of logits. divergence, reduction and factor are its attributes, as in the text `WRITE`."""

    write, names = WRITE, NAMES

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        parameters = list(parameters_of(make).values()) if callable(make) else []
        logits = [parameter.name for parameter in parameters[:2]]
        if len(logits) < 2:
            raise self.cannot_call("it is not a function of two logits")
        self.teacher_first = "teacher" in logits[0] and "teacher" not in logits[1]
        free = [parameter for parameter in parameters[2:] if parameter.name not in getattr(make, "keywords", {})]
        plain = {re.sub("_[A-Z]+$", "", parameter.name): parameter.name for parameter in free}  # labels_BL are labels
        self.arguments = {
            role: next((plain[n] for n in names_of_role if n in plain), "") for role, names_of_role in NAMES.items()
        }
        needed = [
            parameter.name
            for parameter in free
            if parameter.default is parameter.empty and parameter.kind not in (2, 4)
        ]
        if unknown := [name for name in needed if name not in self.arguments.values()]:
            raise self.cannot_call(f"unknown parameter {unknown[0]!r}")
        self.convention = self._convention()
        self.alpha, self.flat = 1.0, False
        self._try()
        counts = self.arguments["labels"] or self.arguments["mask"]
        self.set_features({"mask": "" if counts else "it takes no labels and no mask", "detach": ""})
        self.temperatures = (3.0, 1.0, 0.5) if self.arguments["temperature"] else (1.0,)

    def case(self, seed: int, temperature: float = 1.0, *, masked: bool = False, scale: float = 2.0) -> Case:
        """Return a case: sequences of one position if the loss is that of rows. masked: some positions do not count."""
        case = draw_case(seed, temperature, masked=masked and "mask" not in self.lacks, scale=scale)
        if not self.flat:
            return case
        parts = {name: getattr(case, name).flatten(0, 1)[:, None] for name in ("student", "teacher", "keep")}
        return replace(case, **parts)

    def loss(self, case: Case) -> Tensor:
        self.used.append(case)
        return self._call(case)

    def gradient(self, case: Case) -> tuple[float, Tensor]:
        """Return the loss and its gradient by the student's logits."""
        student = case.student.clone().requires_grad_()
        loss = self.loss(replace(case, student=student))
        (gradient,) = torch.autograd.grad(loss, student)
        return float(loss.detach()), gradient

    def _call(self, case: Case) -> Tensor:
        source = torch.Generator().manual_seed(0)
        # Labels only say which positions count; -100 is ignored, as in PyTorch.
        labels = torch.randint(case.student.shape[-1], case.keep.shape, generator=source).where(case.keep, -100)
        values: dict[str, Any] = {"labels": labels, "mask": case.keep, "temperature": case.temperature}
        values |= {"off": 0.0, "on": 1.0, "alpha": self.alpha}
        parts = [case.teacher, case.student] if self.teacher_first else [case.student, case.teacher]
        if self.flat:
            parts = [part.flatten(0, 1) for part in parts]
            values |= {name: values[name].flatten() for name in ("labels", "mask")}
        found = self.subject(*parts, **{name: values[role] for role, name in self.arguments.items() if name})
        found = found[0] if isinstance(found, tuple) else found
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise TypeError(f"it returned {type(found).__name__}, not a scalar tensor")
        return found.reshape(())

    def _try(self) -> None:
        """Choose the shape, and the alpha with which the loss is that of the teacher."""
        case = draw_case(0, 1.0)
        for self.flat in (False, True):
            try:
                self._call(case)
                break
            except Exception as error:
                if self.flat:
                    raise self.cannot_call(f"{type(error).__name__}: {error}") from error
        other = replace(case, teacher=draw_case(1, 1.0).teacher)
        # alpha weighs either the hard or the soft loss: if the teacher does not matter at 1, it weighs the hard one.
        if self.arguments["alpha"] and torch.equal(self._call(case), self._call(other)):
            self.alpha = 0.0

    def _convention(self) -> Convention:
        given = {name: getattr(self.subject, name, value) for name, value in vars(Convention()).items()}
        known = {
            "divergence": ("forward", "reverse"),
            "reduction": ("mean", "batchmean", "sum"),
            "factor": ("T^2", "1"),
        }
        for name, choices in known.items():
            if given[name] not in choices:
                raise self.cannot_call(f"unknown {name} {given[name]!r} (choose from {', '.join(choices)})")
        return Convention(**given)


def bench(subject: object, directory: Path | None) -> Bench:
    """Return a bench of a function; raise `CannotCall` with what to write for everything else."""
    return Bench(subject)


def draw_case(seed: int, temperature: float, *, masked: bool = False, scale: float = 2.0) -> Case:
    """Return a case; masked: some positions do not count, another number in each sequence."""
    source = torch.Generator().manual_seed(seed)
    student, teacher = (scale * torch.randn(B, L, V, generator=source) for _ in range(2))
    keep = torch.ones(B, L, dtype=torch.bool)
    if masked:
        keep[0, 1:], keep[1, seed % L] = torch.rand(L - 1, generator=source) < 0.5, False
    return Case(student=student, teacher=teacher, keep=keep, temperature=temperature)

"""Floating-point operations of an optimizer step: counted on shapes alone, on one row, or estimated."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from reference_trainer.distillation.providers import evaluating
from reference_trainer.errors import first_line

LONG = 512


def step_flops(teacher: nn.Module | None, student: nn.Module, tokens: tuple[int, int]) -> int:
    """Return the floating-point operations of one step on [B, T] tokens; a multiplication and an addition are two.

    They are those of the matrix products and convolutions of the teacher's forward in eval mode (None: no teacher) and
    of the student's forward and backward. Attention is counted as its two products, without the half that a causal
    mask saves.

    The modules map int64 tokens [B, T] to logits, or to an object with `.logits`. They run on the meta device: nothing
    is computed, and weights, buffers, gradients and the CPU's generator stay as they are. Their hooks are called.
    Errors: those of PyTorch for a module that reads values of its tensors or names another device (autocast).
    """
    with FlopCounterMode(display=False) as counter, torch.random.fork_rng(devices=[]):
        if teacher is not None:
            with torch.no_grad(), evaluating(teacher):
                _logits(teacher, tokens)
        logits_BTV = _logits(student, tokens)
        torch.autograd.backward(logits_BTV, torch.empty_like(logits_BTV))
    total: int = counter.get_total_flops()
    return total


def counted_flops(teacher: nn.Module | None, student: nn.Module, tokens_BT: Tensor) -> tuple[int, list[str]]:
    """Return the operations of a step by the first of `step_flops` and `row_flops` that succeeds, else an estimate.

    The estimate comes with a line that says so.
    """
    with suppress(Exception):  # of a module that reads values or names a device
        return step_flops(teacher, student, (tokens_BT.shape[0], tokens_BT.shape[1])), []
    try:
        return row_flops(teacher, student, tokens_BT), []
    except Exception as error:  # of an own model, which may need more than a row of tokens
        reason = f"{type(error).__name__}: {first_line(error)[:200]}"
        line = f"metrics: flops_per_s is an estimate, because a model does not run on one row of tokens: {reason}"
        return estimated_flops(teacher, student, tokens_BT), [line]


def row_flops(teacher: nn.Module | None, student: nn.Module, tokens_BT: Tensor) -> int:
    """Return what `step_flops` does, for modules that read values: they compute a row of zeros, which stands for B.

    They run in eval mode, each on the device of its parameters. The backward is that of the parameters that require a
    gradient, and gives none of them a gradient. A row of more than `LONG` tokens, whose plain attention takes T x T
    numbers, is counted by two shorter ones: operations are linear and quadratic in T. Errors: those of the modules.
    """
    B, T = tokens_BT.shape
    if T <= LONG:
        return B * _row(teacher, student, tokens_BT[:1])
    half, whole = (_row(teacher, student, tokens_BT[:1, :length]) for length in (LONG // 2, LONG))
    quadratic, linear = (whole - 2 * half) * 2 / LONG**2, (4 * half - whole) / LONG
    return round(B * (linear * T + quadratic * T**2))


def _row(teacher: nn.Module | None, student: nn.Module, tokens_1T: Tensor) -> int:
    """Return the operations of a row."""
    row_1T = torch.zeros_like(tokens_1T)  # any token: a model that is watched sees no example twice
    # The counter does not know every fused attention; the products of the plain one are the same.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.random.fork_rng():
        if teacher is not None:
            with torch.no_grad(), evaluating(teacher):
                teacher(row_1T.to(_device(teacher)))
        with torch.enable_grad(), evaluating(student):
            output = student(row_1T.to(_device(student)))
            logits_1TV = output if isinstance(output, Tensor) else output.logits
            trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
            torch.autograd.grad(logits_1TV, trained, torch.ones_like(logits_1TV), allow_unused=True)
    return int(counter.get_total_flops())


def estimated_flops(teacher: nn.Module | None, student: nn.Module, tokens_BT: Tensor) -> int:
    """Return 6 operations for each parameter of the student and 2 for each of the teacher, times the tokens.

    Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1, without the operations of attention.
    """
    modules = (teacher or nn.Module(), student)
    N_teacher, N_student = (sum(parameter.numel() for parameter in module.parameters()) for module in modules)
    return (2 * N_teacher + 6 * N_student) * tokens_BT.numel()


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def _logits(module: nn.Module, tokens: tuple[int, int]) -> Tensor:
    """Return the logits [B, T, V] of the module with all its tensors replaced by tensors without storage."""
    weights = {
        name: torch.empty_like(tensor, device="meta", requires_grad=tensor.requires_grad)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    output = functional_call(module, weights, (torch.zeros(tokens, dtype=torch.int64, device="meta"),))
    logits_BTV: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits_BTV

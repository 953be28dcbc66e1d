"""Count the floating-point operations of an optimizer step: on the meta device, on one row, or by an estimate."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from reference_trainer.distillation.providers import evaluating
from reference_trainer.errors import first_line

LONG = 512  # tokens of the longest row that `row_flops` runs


def step_flops(teacher: nn.Module | None, student: nn.Module, shape: tuple[int, int]) -> int:
    """Return the floating-point operations of one step on tokens of a shape [B, T]; a multiply-add counts as two.

    Matrix products and convolutions are counted, in the teacher's forward in eval mode (None: no teacher) and in the
    student's forward and backward. Attention is counted as two full products: the half that a causal mask may save is
    not subtracted.

    The modules map int64 tokens [B, T] to logits, or to an object with `.logits`. They run on the meta device: nothing
    is computed; weights, buffers, gradients and the CPU generator are unchanged; hooks are called. Raise an error of
    PyTorch for a module that reads values of its tensors, or names another device (autocast).
    """
    with FlopCounterMode(display=False) as counter, torch.random.fork_rng(devices=[]):
        if teacher is not None:
            with torch.no_grad(), evaluating(teacher):
                _logits(teacher, shape)
        logits_BTV = _logits(student, shape)
        torch.autograd.backward(logits_BTV, torch.empty_like(logits_BTV))
    total: int = counter.get_total_flops()
    return total


def counted_flops(teacher: nn.Module | None, student: nn.Module, tokens_BT: Tensor) -> tuple[int, list[str]]:
    """Return the operations of a step, and notes. Try `step_flops`, then `row_flops`, then `estimated_flops`.

    If the number is an estimate, there is one note, with the reason.
    """
    with suppress(Exception):  # raised by a module that reads values or names a device
        return step_flops(teacher, student, (tokens_BT.shape[0], tokens_BT.shape[1])), []
    try:
        return row_flops(teacher, student, tokens_BT), []
    except Exception as error:  # a model of the user may need other arguments
        reason = f"{type(error).__name__}: {first_line(error)[:200]}"
        line = f"metrics: flops_per_s is an estimate, because a model does not run on one row of tokens: {reason}"
        return estimated_flops(teacher, student, tokens_BT), [line]


def row_flops(teacher: nn.Module | None, student: nn.Module, tokens_BT: Tensor) -> int:
    """Return the floating-point operations as `step_flops`, for modules that read values: run one row, multiply by B.

    The modules run in eval mode on a row of zeros, each on the device of its parameters. The backward covers the
    parameters that require a gradient; their `.grad` is unchanged. Plain attention needs T x T numbers. Operations are
    a·T + b·T², so for more than `LONG` tokens, a and b are computed from two shorter rows. Raise the modules' errors.
    """
    B, T = tokens_BT.shape
    if T <= LONG:
        return B * _row(teacher, student, tokens_BT[:1])
    # Let L = LONG and f(T) = a T + b T^2. Then f(L) - 2 f(L/2) = b L^2 / 2 and 4 f(L/2) - f(L) = a L.
    half, full = (_row(teacher, student, tokens_BT[:1, :length]) for length in (LONG // 2, LONG))
    quadratic, linear = (full - 2 * half) * 2 / LONG**2, (4 * half - full) / LONG
    return round(B * (linear * T + quadratic * T**2))


def _row(teacher: nn.Module | None, student: nn.Module, tokens_1T: Tensor) -> int:
    """Return the operations of a step on one row."""
    row_1T = torch.zeros_like(tokens_1T)  # not the tokens: a recorded model would see an example twice
    # The counter does not support every fused attention; plain attention has the same products.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.random.fork_rng():
        if teacher is not None:
            with torch.no_grad(), evaluating(teacher):
                teacher(row_1T.to(_device(teacher)))
        with torch.enable_grad(), evaluating(student):
            output = student(row_1T.to(_device(student)))
            logits_1TV = output if isinstance(output, Tensor) else output.logits
            trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
            # `grad` and not `backward`, which would add to `.grad`.
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


def _logits(module: nn.Module, shape: tuple[int, int]) -> Tensor:
    """Return the logits [B, T, V] of the module on the meta device, for tokens of a shape [B, T]."""
    # The module is unchanged: the call replaces its tensors by tensors without storage.
    weights = {
        name: torch.empty_like(tensor, device="meta", requires_grad=tensor.requires_grad)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    output = functional_call(module, weights, (torch.zeros(shape, dtype=torch.int64, device="meta"),))
    logits_BTV: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits_BTV

"""Count the floating-point operations of an optimizer step: on the meta device, on one row, or by an estimate."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from reference_trainer.distillation.providers import device_of, evaluating
from reference_trainer.errors import first_line

LONGEST_ROW = 512  # largest number of tokens on which `row_flops` runs a model


def step_flops(teacher: nn.Module | None, student: nn.Module, shape: tuple[int, int]) -> int:
    """Return the floating-point operations of one step on tokens of a shape [B, T]; a multiply-add counts as two.

    Matrix products and convolutions are counted, in the teacher's forward in eval mode (None: no teacher) and in the
    student's forward and backward. Attention is counted as two full products, also with a causal mask, which may save
    half of the operations.

    The modules map int64 tokens [B, T] to logits, or to an object with `.logits`. They run on the meta device: nothing
    is computed; weights, buffers, gradients and the CPU generator are unchanged; hooks are called. Raise the error of
    PyTorch if a module reads values of its tensors, or uses another device, such as in `torch.autocast("cuda")`.
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
    """Return the floating-point operations of a step, and lines for the user.

    Try `step_flops`, then `row_flops`, then `estimated_flops`. For an estimate, there is one line, with the reason.
    """
    with suppress(Exception):  # raised by a module that reads values or uses another device
        return step_flops(teacher, student, (tokens_BT.shape[0], tokens_BT.shape[1])), []
    try:
        return row_flops(teacher, student, tokens_BT), []
    except Exception as error:  # a custom model may need other arguments
        reason = f"{type(error).__name__}: {first_line(error)[:200]}"
        line = f"metrics: flops_per_s is an estimate, because a model does not run on one row of tokens: {reason}"
        return estimated_flops(teacher, student, tokens_BT), [line]


def row_flops(teacher: nn.Module | None, student: nn.Module, tokens_BT: Tensor) -> int:
    """Count the operations of `step_flops`, also for modules that read values: run one row, and multiply by B.

    The modules run in eval mode on a row of zeros, each on the device of its parameters. The backward covers the
    parameters that require a gradient; their `.grad` is unchanged. Errors of the modules propagate.

    Plain attention needs memory for T x T numbers, so at most `LONGEST_ROW` tokens are run. The number of operations is
    a·T + b·T²; for a longer row, a and b are computed from two shorter rows.
    """
    B, T = tokens_BT.shape
    if T <= LONGEST_ROW:
        return B * _count_row(teacher, student, tokens_BT[:1])
    # Let L = LONGEST_ROW and f(T) = a T + b T^2. Then f(L) - 2 f(L/2) = b L^2 / 2 and 4 f(L/2) - f(L) = a L.
    half, full = (_count_row(teacher, student, tokens_BT[:1, :length]) for length in (LONGEST_ROW // 2, LONGEST_ROW))
    quadratic, linear = (full - 2 * half) * 2 / LONGEST_ROW**2, (4 * half - full) / LONGEST_ROW
    return round(B * (linear * T + quadratic * T**2))


def _count_row(teacher: nn.Module | None, student: nn.Module, tokens_1T: Tensor) -> int:
    """Return the floating-point operations of a step on one row."""
    # Zeros, not the tokens: a forward hook that records the inputs of the model would record this row twice.
    row_1T = torch.zeros_like(tokens_1T)
    # The counter does not support every fused attention; plain attention has the same products.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.random.fork_rng():
        if teacher is not None:
            with torch.no_grad(), evaluating(teacher):
                teacher(row_1T.to(device_of(teacher)))
        with torch.enable_grad(), evaluating(student):
            output = student(row_1T.to(device_of(student)))
            logits_1TV = output if isinstance(output, Tensor) else output.logits
            trained = [parameter for parameter in student.parameters() if parameter.requires_grad]
            # `grad` and not `backward`, which would add to `.grad`.
            torch.autograd.grad(logits_1TV, trained, torch.ones_like(logits_1TV), allow_unused=True)
    return int(counter.get_total_flops())


def estimated_flops(teacher: nn.Module | None, student: nn.Module, tokens_BT: Tensor) -> int:
    """Return 6 operations for each parameter of the student and 2 for each parameter of the teacher, times the tokens.

    Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1, without the operations of attention.
    """
    modules = (teacher or nn.Module(), student)
    N_teacher, N_student = (sum(parameter.numel() for parameter in module.parameters()) for module in modules)
    return (2 * N_teacher + 6 * N_student) * tokens_BT.numel()


def _logits(module: nn.Module, shape: tuple[int, int]) -> Tensor:
    """Return the logits [B, T, V] of the module on the meta device, for tokens of a shape [B, T]."""
    # `functional_call` leaves the module unchanged: it runs the forward with these tensors, which have no storage.
    weights = {
        name: torch.empty_like(tensor, device="meta", requires_grad=tensor.requires_grad)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    output = functional_call(module, weights, (torch.zeros(shape, dtype=torch.int64, device="meta"),))
    logits_BTV: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits_BTV

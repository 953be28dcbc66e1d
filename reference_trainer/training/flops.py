"""Floating-point operations of an optimizer step, counted on shapes alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from reference_trainer.distillation.providers import evaluating

__all__ = ["step_flops"]


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


def _logits(module: nn.Module, tokens: tuple[int, int]) -> Tensor:
    """Return the logits [B, T, V] of the module with all its tensors replaced by tensors without storage."""
    weights = {
        name: torch.empty_like(tensor, device="meta", requires_grad=tensor.requires_grad)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    output = functional_call(module, weights, (torch.zeros(tokens, dtype=torch.int64, device="meta"),))
    logits_BTV: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits_BTV

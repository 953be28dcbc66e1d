"""Calls the code with the same kind of values in other memory layouts: the checks `noncontiguous_inputs` and so on."""

from collections.abc import Iterator
from dataclasses import replace

from pv.engines.equation.comparison import Layout
from pv.equations.arrays import Tensor, torch
from pv.equations.definition import Check
from pv.equations.domain import DISTRIBUTIONS
from pv.equations.evaluate import Claim, System
from pv.equations.examples import Example


def layouts(system: System, claim: Claim, example: Example) -> Iterator[tuple[str, Layout, Example]]:
    """Yield the layouts that a claim checks, each with its name and an example that has it."""
    expected = claim.checks.names if claim.call is not None else frozenset()
    if Check.NONCONTIGUOUS_INPUTS in expected:
        yield "non-contiguous inputs", _noncontiguous, example
    if Check.EXPANDED_INPUTS in expected:
        repeated = _repeated(claim, example)
        if system.admits(claim, repeated):
            yield "expanded inputs", _expanded, repeated


def _noncontiguous(array: Tensor) -> Tensor:
    """Return the array transposed in memory, with every second element of it unused."""
    if array.dim() == 0:
        return array
    turned = array.transpose(0, -1)
    return torch.stack([turned, turned], -1)[..., 0].transpose(0, -1)


def _expanded(array: Tensor) -> Tensor:
    """Return the array with its first slice repeated without memory, if that does not change its values."""
    expanded = array[:1].expand_as(array) if array.dim() and array.numel() else array
    return expanded if torch.equal(expanded, array) else array


def _repeated(claim: Claim, example: Example) -> Example:
    """Return the example with all slices of the first axis equal to the first, except that of a distribution."""
    arrays = {}
    for name, array in example.arrays.items():
        kept = claim.equation.variables[name].kind in DISTRIBUTIONS and array.dim() == 1
        whole = array.dim() == 0 or not array.numel() or kept
        arrays[name] = array if whole else array[:1].expand_as(array).clone()
    return replace(example, arrays=arrays)

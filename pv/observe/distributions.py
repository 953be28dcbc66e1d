"""Records how samples are drawn from distributions whose parameters require gradients, and whether losses use samples.

A *source* is a line of the script that creates such distributions. `sample()` gives no gradient to the parameters. If a
loss depends on the samples, the script needs `rsample()`, or `log_prob()` for a score-function estimator.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Optional

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from . import frames

if TYPE_CHECKING:
    from .observer import Observer


MIN_ELEMENTS = 8
"""Cosines of fewer elements are not recorded, since they may be near 1 by chance."""


class Source:
    """Facts about the distributions that one line has created.

    Attributes:
        at: The line.
        kind: The class of the first distribution.
        sampled_at: The line of the last `sample()`.
        samples: Number of calls of `sample()` where `rsample()` exists and parameters require gradients.
        rsamples: Number of calls of `rsample()`.
        log_probs: Number of calls of `log_prob()`.
    """

    def __init__(self, at: str, kind: str) -> None:
        self.at, self.kind = at, kind
        self.sampled_at = ""
        self.samples = self.rsamples = self.log_probs = 0
        self.used = 0
        """Number of gradients that reached the output of a layer or model with a sample as its input."""
        self.arrived: list[Tensor] = []
        """For every gradient that reached a parameter of a sampled distribution: 1 if it was not 0, else 0."""
        self.alignments: list[Tensor] = []
        """The absolute cosines between a location parameter, such as a mean, and the gradient that reached it."""


class Samples:
    """The sources of one process, and the storages of their samples."""

    def __init__(self) -> None:
        self.sources: dict[int, Source] = {}
        self.keys: weakref.WeakKeyDictionary[torch.distributions.Distribution, int] = weakref.WeakKeyDictionary()
        """The key of the source of a distribution, by distribution."""
        self.stored: dict[int, tuple[StorageWeakRef, Source]] = {}
        """A weak reference to the storage of a sample, and the source of the sample, by address of the storage."""
        self.depth = 0
        """Number of nested calls of methods of distributions that are running now."""

    def of(self, tensors: Iterable[Tensor]) -> list[Source]:
        """Return the sources of those tensors that share their storage with a sample."""
        if not self.stored:
            return []
        entries = (self.stored.get(t.untyped_storage()._cdata) for t in tensors if t.layout == torch.strided)
        return [entry[1] for entry in entries if entry is not None and not entry[0].expired()]

    def describe(self) -> Sequence[Mapping[str, object]]:
        """Return the sources with samples, at most 20, as fields of an event."""
        return [
            {
                "kind": source.kind,
                "at": source.at,
                "sampled_at": source.sampled_at,
                "samples": source.samples,
                "rsamples": source.rsamples,
                "log_probs": source.log_probs,
                "used": source.used,
                "arrived": torch.stack(source.arrived).sum() if source.arrived else 0,
                # A gradient of 0, such as of a divergence whose weight is still 0 in a warm-up, has a cosine of 0.
                "alignment": torch.stack(source.alignments).max() if source.alignments else None,
            }
            for source in self.sources.values()
            if source.samples or source.rsamples
        ][:20]


def watch_use(sources: list[Source], output: object) -> None:
    """Register a hook that counts the gradients that reach the output of a layer.

    Args:
        sources: The sources of samples in the inputs of the layer.
        output: The output of the layer.
    """

    def hook(gradient: object) -> None:
        if gradient is not None:
            for source in sources:
                source.used += 1

    if sources and isinstance(output, Tensor) and output.requires_grad:
        output.register_hook(hook)


def _parameters(distribution: object, depth: int = 0) -> Iterator[tuple[Tensor, bool]]:
    """Yield the parameters that require a gradient, of a distribution and of its nested distributions.

    Yields:
        The parameter, and whether it is the location of the distribution, such as the mean of a `Normal`.
    """
    for name, value in list(vars(distribution).items()):
        if isinstance(value, Tensor) and value.requires_grad:
            yield value, name == "loc"
        elif depth < 3 and isinstance(value, torch.distributions.Distribution):
            yield from _parameters(value, depth + 1)


def install(observer: Callable[[], Observer], steps: int) -> None:
    """Wrap the constructor, `sample`, `rsample` and `log_prob` of the distributions of torch.

    Args:
        observer: Returns the observer of this process.
        steps: Calls of `sample()` are recorded until this number of optimizer steps is reached.
    """
    base = torch.distributions.Distribution
    original: Callable[..., None] = base.__init__

    @frames.wraps(original)
    def __init__(self: torch.distributions.Distribution, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        active = observer()
        if active.is_active() and torch.is_grad_enabled() and not active.samples.depth:
            with active.observing("distribution"):
                at, key = active.sites.find(2)
                active.samples.keys[self] = key
                active.samples.sources.setdefault(key, Source(at, type(self).__name__))

    base.__init__ = __init__  # type: ignore[method-assign]  # every distribution calls it; torch has no hook

    def make(name: str, method: Callable[..., object]) -> Callable[..., object]:
        @frames.wraps(method)
        def call(self: torch.distributions.Distribution, *args: object, **kwargs: object) -> object:
            active = observer()
            samples = active.samples
            # Only outermost calls count: `Independent.rsample` calls `Normal.rsample`.
            source = samples.sources.get(samples.keys.get(self, -1))
            grad = torch.is_grad_enabled()
            if source is None or samples.depth or not active.is_active():
                return method(self, *args, **kwargs)
            samples.depth += 1
            try:
                result = method(self, *args, **kwargs)
            finally:
                samples.depth -= 1
            with active.observing("sample"):
                if name == "log_prob":
                    source.log_probs += 1
                elif name == "rsample":
                    source.rsamples += 1
                # If a distribution has no `rsample()`, or gradients are disabled, `sample()` is the only choice.
                elif grad and self.has_rsample and active.steps < steps and isinstance(result, Tensor):
                    parameters = list(_parameters(self))
                    if parameters:
                        source.samples += 1
                        source.sampled_at = active.at()
                        # Views and in-place operations keep the storage of a sample, so the storage identifies it.
                        place = result.untyped_storage()
                        samples.stored[place._cdata] = (StorageWeakRef(place), source)
                        for p, is_location in parameters:
                            values = p.detach().clone() if is_location else None
                            p.register_hook(functools.partial(_record_arrival, source, values))
            return result

        return call

    for kind in list(vars(torch.distributions).values()):
        if isinstance(kind, type) and issubclass(kind, base):
            for name in ("sample", "rsample", "log_prob"):
                # Subclasses override these methods, so every definition is wrapped.
                if name in vars(kind):
                    setattr(kind, name, make(name, vars(kind)[name]))


def _record_arrival(source: Source, location: Optional[Tensor], gradient: Optional[Tensor]) -> None:
    """Record a gradient that reached a parameter of a sampled distribution; called by a hook on the parameter.

    Args:
        source: The source of the distribution.
        location: The values of the parameter if it is a location; None for another parameter.
        gradient: The gradient of the parameter.
    """
    if gradient is not None and len(source.arrived) < 100:
        source.arrived.append((gradient.detach() != 0).any().double().cpu())
        if location is not None and location.numel() >= MIN_ELEMENTS:
            rows = (gradient.detach().double().flatten(), location.double().flatten())
            source.alignments.append(torch.nn.functional.cosine_similarity(*rows, dim=0).abs().cpu())

"""Notes samples of distributions whose parameters need a gradient: how they were drawn, and whether a loss uses them.

A *source* is a line of the script that makes such distributions. `sample()` gives no gradient to the parameters, so a
source whose samples are trained on needs `rsample()`, or `log_prob()` for a score-function estimator.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from . import frames

if TYPE_CHECKING:
    from .observer import Observer


class Source:
    """What is known of the distributions that one line has made."""

    def __init__(self, at: str, kind: str) -> None:
        self.at, self.kind = at, kind
        self.sampled_at = ""
        self.samples = self.rsamples = self.log_probs = 0
        self.used = 0
        """Backward passes through a layer that a sample was the input of."""
        self.arrived: list[Tensor] = []
        """For a gradient that arrived at a parameter of a sampled distribution: whether it was not 0."""


class Samples:
    """The sources of one process, and where their last samples are stored."""

    def __init__(self) -> None:
        self.sources: dict[int, Source] = {}
        self.keys: weakref.WeakKeyDictionary[torch.distributions.Distribution, int] = weakref.WeakKeyDictionary()
        """By distribution: the number of the line that made it."""
        self.stored: dict[int, tuple[StorageWeakRef, Source]] = {}
        """By address of a storage: the storage (a weak reference), and the source of the sample in it."""
        self.depth = 0

    def of(self, tensors: Iterable[Tensor]) -> list[Source]:
        """Return the sources whose samples are among tensors."""
        if not self.stored:
            return []
        rows = (self.stored.get(t.untyped_storage()._cdata) for t in tensors if t.layout == torch.strided)
        return [row[1] for row in rows if row is not None and not row[0].expired()]

    def describe(self) -> Sequence[Mapping[str, object]]:
        """Return the sources that were sampled, for an event."""
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
            }
            for source in self.sources.values()
            if source.samples or source.rsamples
        ][:20]


def watch_use(sources: list[Source], output: object) -> None:
    """Count the backward passes that reach the output of a layer whose input was a sample."""

    def hook(gradient: object) -> None:
        if gradient is not None:
            for source in sources:
                source.used += 1

    if sources and isinstance(output, Tensor) and output.requires_grad:
        output.register_hook(hook)


def _parameters(distribution: object, depth: int = 0) -> Iterator[Tensor]:
    """Yield the tensors that define a distribution, or those inside it, and need a gradient."""
    for value in list(vars(distribution).values()):
        if isinstance(value, Tensor) and value.requires_grad:
            yield value
        elif depth < 3 and isinstance(value, torch.distributions.Distribution):
            yield from _parameters(value, depth + 1)


def install(observer: Callable[[], Observer], steps: int) -> None:
    """Wrap the distributions of torch.

    Args:
        observer: Returns the observer of this process.
        steps: Number of optimizer steps in which samples are followed.
    """
    base = torch.distributions.Distribution
    original = base.__init__

    @frames.wraps(original)
    def __init__(self: torch.distributions.Distribution, *args: Any, **kwargs: Any) -> None:
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
            # Only the outermost call counts: `Independent.rsample` calls `Normal.rsample`.
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
                # Without reparametrization, or without gradients, `sample()` is the only choice.
                elif grad and self.has_rsample and active.steps < steps and isinstance(result, Tensor):
                    parameters = list(_parameters(self))
                    if parameters:
                        source.samples += 1
                        source.sampled_at = active.at()
                        # Views and in-place changes of a sample keep its storage, so it is recognized by that.
                        place = result.untyped_storage()
                        samples.stored[place._cdata] = (StorageWeakRef(place), source)
                        for p in parameters:
                            p.register_hook(functools.partial(_note_arrival, source))
            return result

        return call

    for kind in list(vars(torch.distributions).values()):
        if isinstance(kind, type) and issubclass(kind, base):
            for name in ("sample", "rsample", "log_prob"):
                # Subclasses override these methods, so each definition is wrapped, and not only the one of the base.
                if name in vars(kind):
                    setattr(kind, name, make(name, vars(kind)[name]))


def _note_arrival(source: Source, gradient: Optional[Tensor]) -> None:
    if gradient is not None and len(source.arrived) < 100:
        source.arrived.append((gradient.detach() != 0).any().double().cpu())

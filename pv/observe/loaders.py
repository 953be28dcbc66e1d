"""Notes the passes over data loaders, and which loader a batch came from."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Optional

import torch
from torch import Tensor
from torch.utils.data import dataloader

from . import tokens


def install(observer: Callable[[], Any]) -> None:
    """Wrap the iterators of `torch.utils.data.DataLoader`.

    Args:
        observer: Returns the observer of this process.
    """
    base = dataloader._BaseDataLoaderIter
    numbers: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
    """By loader: its number, and how many passes have begun."""
    passes: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
    """By iterator: the number of the loader, the number of the pass, and the batches so far."""

    def begin(iterator: Any, loader: Any) -> None:
        active = observer()
        at = active.at()
        if loader not in numbers:
            numbers[loader] = [active.number(), 0]
            dataset = loader.dataset
            active.add(
                "loader",
                loader=numbers[loader][0],
                dataset=type(dataset).__name__,
                data=id(dataset),
                examples=len(dataset) if hasattr(dataset, "__len__") else None,
                batch=loader.batch_size,
                sampler=type(getattr(loader, "sampler", None)).__name__,
                drop_last=bool(loader.drop_last),
                workers=loader.num_workers,
                at=at,
            )
        active.passes += 1
        numbers[loader][1] += 1
        passes[iterator] = [*numbers[loader], 0]
        active.add("pass", loader=numbers[loader][0], index=numbers[loader][1], at=at)

    def wrap(name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(base, name)
        setattr(base, name, functools.wraps(original)(make(original)))

    def make_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, loader: Any) -> None:
            original(self, loader)
            if observer().is_active():
                with observer().observing("loader"):
                    begin(self, loader)

        return __init__

    def make_reset(original: Callable[..., Any]) -> Callable[..., Any]:
        def _reset(self: Any, loader: Any, first_iter: bool = False) -> Any:
            if not first_iter and observer().is_active():  # persistent workers: the same iterator makes another pass
                with observer().observing("loader"):
                    begin(self, loader)
            return original(self, loader, first_iter)

        return _reset

    def make_next(original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(self: Any) -> Any:
            state = passes.get(self)
            try:
                batch = original(self)
            except StopIteration:
                if state is not None and observer().is_active():
                    # A library that fetches one batch ahead has not yet used the last one.
                    observer().batches.append((None, set()))
                    observer().add("pass_end", loader=state[0], index=state[1], batches=state[2])
                raise
            if state is not None and observer().is_active():
                with observer().observing("batch"):
                    state[2] += 1
                    observer().batches.append((state[0], storages(observer().tensors_in(batch))))
                    tokens.note_batch(observer(), batch)
            return batch

        return __next__

    wrap("__init__", make_init)
    wrap("_reset", make_reset)
    wrap("__next__", make_next)


def storages(tensors: Iterable[Tensor]) -> set[int]:
    """Return where tensors are stored."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout == torch.strided} - {0}


def loader_of(batches: Any, tensors: list[Tensor]) -> Optional[int]:
    """Return the number of the loader whose batch these tensors are of; if none matches, that of the pass that runs."""
    if not batches:
        return None
    pointers = storages(tensors)
    matching = (number for number, stored in reversed(batches) if pointers & stored)
    last: Optional[int] = batches[-1][0]
    return next(matching, last)

"""Adapters of known trainers, and the choice of the adapter for a subject.

The library of an adapter is imported only if a subject needs the adapter.
"""

import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import cast

from pv.suites.bench import name_of, takes_nothing
from pv.suites.training_loop.features import NoAdapter as NoAdapter
from pv.suites.training_loop.features import check_adapter
from pv.suites.training_loop.job import Trainer


def adapted(subject: object) -> Trainer:
    """Return the adapter of a subject.

    Args:
        subject: An adapter, or a class of a known library.

    Raises:
        NoAdapter: The subject is neither an adapter nor a known class, or the adapter is invalid; the text says what to
            write.
        Contradiction: The declarations of the adapter cannot all be true.
    """
    for base, make_adapter in _ADAPTERS.items():
        if base in _bases(subject):
            return make_adapter(subject)
    if callable(getattr(subject, "run", None)):
        return _checked(_instance(subject) if inspect.isclass(subject) else cast(Trainer, subject))
    raise NoAdapter(_UNKNOWN.format(name=name_of(subject)))


def _checked(trainer: Trainer) -> Trainer:
    """Return an adapter after `check_adapter`."""
    check_adapter(trainer)
    return trainer


def _bases(subject: object) -> list[str]:
    """Return the names of a class and its bases as PACKAGE.CLASS, where the package is the top-level one."""
    kind = subject.func if isinstance(subject, functools.partial) else subject
    classes = inspect.getmro(kind) if inspect.isclass(kind) else ()
    return [f"{class_.__module__.split('.')[0]}.{class_.__qualname__}" for class_ in classes]


def _adapter(place: str) -> Callable[..., Trainer]:
    """Import the adapter MODULE:CLASS of this package."""
    module, _, name = place.partition(":")
    return cast(Callable[..., Trainer], getattr(import_module(f"{__name__}.{module}"), name))


def _wrapper(place: str, argument: str, *, is_sequence: bool = False) -> Callable[[object], Trainer]:
    """Return a function that makes an adapter of a subject.

    Args:
        place: The adapter, as MODULE:CLASS in this package.
        argument: The argument of the adapter that gets the subject.
        is_sequence: Whether the argument is a sequence.
    """
    return lambda subject: _adapter(place)(**{argument: (subject,) if is_sequence else subject})


def _refusal(text: str) -> Callable[[object], Trainer]:
    """Return a function that raises `NoAdapter` for a subject, with its name in the text."""

    def refuse(subject: object) -> Trainer:
        raise NoAdapter(text.format(name=name_of(subject)))

    return refuse


def _instance(kind: Callable[..., object]) -> Trainer:
    """Create an adapter from its class. Raise `NoAdapter` if the class needs arguments."""
    try:
        return cast(Trainer, kind())
    except TypeError as error:
        if takes_nothing(kind):
            raise
        if not hasattr(kind, "features") and not hasattr(kind, "lacks"):
            raise NoAdapter(_UNKNOWN.format(name=name_of(kind))) from error
        raise NoAdapter(f"the adapter {name_of(kind)} is created without arguments: {error}") from error


_MODULE = """{name} is a LightningModule, which creates its own network. Write an adapter that uses the probe instead:

    from pv.suites.training_loop.adapters.lightning import Lightning

    class Adapter(Lightning):
        features = {{"schedule": "the module has a schedule of its own"}}  # if it has
        names = {{"loss": "train_loss", "eval_loss": "val_loss"}}  # as the module logs them

        def module(self, job):
            module = {name}(...)  # its arguments; the learning rate is job.rate
            module.network = job.model()  # the attribute that maps token ids [B, T] to logits [B, T, V]
            return module

and pass Adapter instead of {name}. Override collate(job, examples) if the module takes other batches."""

_OTHER_LIGHTNING = "{name} belongs to pytorch_lightning; the suite drives lightning.pytorch, so import that instead"

_ANOTHER_TASK = """{name} is a trainer of trl for data that the suite does not have (only SFTTrainer is known).
Write an adapter: a subclass of pv.suites.training_loop.adapters.transformers.Transformers that overrides build()."""

_UNKNOWN = """cannot adapt {name}: expected an adapter (an object with run(job) -> Report), a subclass of
transformers.Trainer, trl.SFTTrainer, transformers.TrainerCallback or lightning's Callback. `pv new --trainer
MODULE:NAME` writes an adapter of a class or function, with what its source tells. The shortest one is:

    from pv.suites.training_loop.job import Job, Report

    class Adapter:
        features = {{"events": "it has no callbacks"}}  # what the loop does not have, with the reason
        tolerance = 1e-6  # of gradients

        def run(self, job: Job) -> Report:
            model = job.model()
            ...  # train it on job.train, by the code under attack
            return Report(model=model)

For a loop in parts (update, evaluate, save, load), subclass HandWritten of
pv.suites.training_loop.adapters.handwritten instead."""

# By base class of a subject: the function that makes its adapter. The first match wins, so subclasses come first.
_ADAPTERS: dict[str, Callable[[object], Trainer]] = {
    "trl.SFTTrainer": _wrapper("trl:TRL", "trainer"),
    "trl._BaseTrainer": _refusal(_ANOTHER_TASK),
    "transformers.Trainer": _wrapper("transformers:Transformers", "trainer"),
    "transformers.TrainerCallback": _wrapper("transformers:Transformers", "callbacks", is_sequence=True),
    "lightning.LightningModule": _refusal(_MODULE),
    "lightning.Callback": _wrapper("lightning:Lightning", "callbacks", is_sequence=True),
    "pytorch_lightning.LightningModule": _refusal(_OTHER_LIGHTNING),
    "pytorch_lightning.Callback": _refusal(_OTHER_LIGHTNING),
}

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
        trainer = _instance(subject) if inspect.isclass(subject) else cast(Trainer, subject)
        check_adapter(trainer)
        return trainer
    raise NoAdapter(_UNKNOWN.format(name=name_of(subject)))


def _bases(subject: object) -> list[str]:
    """Return the names of a class and its bases as PACKAGE.CLASS, where PACKAGE is the top-level package.

    Args:
        subject: A class, or a `functools.partial` of a class. The list is empty for any other object.
    """
    kind = subject.func if isinstance(subject, functools.partial) else subject
    classes = inspect.getmro(kind) if inspect.isclass(kind) else ()
    return [f"{class_.__module__.split('.')[0]}.{class_.__qualname__}" for class_ in classes]


def _import_adapter(path: str) -> Callable[..., Trainer]:
    """Import an adapter class of this package from its path, MODULE:CLASS, and return the class."""
    module, _, name = path.partition(":")
    return cast(Callable[..., Trainer], getattr(import_module(f"{__name__}.{module}"), name))


def _wrapper(path: str, argument: str, *, is_sequence: bool = False) -> Callable[[object], Trainer]:
    """Return a function that creates an adapter for a subject.

    Args:
        path: The path of the adapter class, MODULE:CLASS, in this package.
        argument: The name of the argument of the class that gets the subject.
        is_sequence: Whether the argument is a sequence of subjects.
    """
    return lambda subject: _import_adapter(path)(**{argument: (subject,) if is_sequence else subject})


def _refusal(text: str) -> Callable[[object], Trainer]:
    """Return a function that raises `NoAdapter` with a text in which `{name}` is replaced by the name of a subject."""

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
        features = {{"schedule": "the module has its own schedule"}}  # if this is true
        names = {{"loss": "train_loss", "eval_loss": "val_loss"}}  # the names under which the module logs them

        def module(self, job):
            module = {name}(...)  # its arguments; the learning rate is job.rate
            module.network = job.model()  # the attribute that maps token ids [B, T] to logits [B, T, V]
            return module

and pass Adapter instead of {name}. Override collate(job, examples) if the module needs other batches."""

_OTHER_LIGHTNING = "{name} belongs to pytorch_lightning, which the suite does not support: import lightning.pytorch"

_ANOTHER_TASK = """{name} is a trainer of trl for data that the suite does not have (SFTTrainer is supported).
Write an adapter: a subclass of pv.suites.training_loop.adapters.transformers.Transformers that overrides build()."""

_UNKNOWN = """cannot adapt {name}: expected an adapter (an object with run(job) -> Report), a subclass of
transformers.Trainer, trl.SFTTrainer, transformers.TrainerCallback or lightning's Callback. `pv new --trainer
MODULE:NAME` writes an adapter from the source of a class or function. The shortest adapter is:

    from pv.suites.training_loop.job import Job, Report

    class Adapter:
        features = {{"events": "the loop has no callbacks"}}  # missing features, with the reason
        tolerance = 1e-6  # relative tolerance of gradients

        def run(self, job: Job) -> Report:
            model = job.model()
            ...  # train the model on job.train with the code under test
            return Report(model=model)

For a loop in parts (update, evaluate, save, load), subclass HandWritten of
pv.suites.training_loop.adapters.handwritten instead."""

# The function that creates the adapter of a subject, by a base class of the subject. The first match is used, so
# subclasses come first.
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

"""Adapters of known trainers. Their libraries are imported only when an adapter is asked for."""

import functools
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any, cast

from pv.errors import PvError
from pv.suites.callable_subject import name_of, takes_nothing
from pv.suites.training_loop.declared import refuse_contradictions
from pv.suites.training_loop.job import FEATURES, Trainer


class NoAdapter(PvError, TypeError):
    """A subject that cannot be attacked as it is; the text says what to write."""


def adapted(subject: Any) -> Trainer:
    """Return the adapter of a subject: an adapter, or a class of a known library that the suite can drive.

    Raise `NoAdapter` with the lines to write for everything else. No library is imported that the subject does not use.
    """
    for base, wrap in _WRAPPED.items():
        if base in _bases(subject):
            return wrap(subject)
    if callable(getattr(subject, "run", None)):
        return _checked(_instance(subject) if inspect.isclass(subject) else cast(Trainer, subject))
    raise NoAdapter(_UNKNOWN.format(name=name_of(subject)))


def _checked(trainer: Trainer) -> Trainer:
    """Return the adapter. Raise `NoAdapter` if a value is missing or of another kind, or names an unknown feature."""
    for where in _VALUES:
        _check_value(trainer, where)
    for where in ("lacks", "has", "without"):
        for name in set(getattr(trainer, where, ())) - FEATURES:  # it would be left out silently
            near = get_close_matches(name, FEATURES, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(FEATURES))}"
            raise NoAdapter(f"{name_of(type(trainer))}.{where} names an unknown feature {name!r}; {hint}")
    refuse_contradictions(trainer)
    return trainer


def _check_value(trainer: Trainer, where: str) -> None:
    place, what = f"{name_of(type(trainer))}.{where}", _VALUES[where]
    if callable(inspect.getattr_static(trainer, where, None)):
        raise NoAdapter(f"{place} must be {what}, it is a method: write it as an attribute or property")
    if where in ("lacks", "not_claimed", "tolerance") and not hasattr(trainer, where):
        raise NoAdapter(f"missing attribute {place}: expected {what}")
    if where in ("has", "without") and isinstance(value := getattr(trainer, where, ()), str):
        raise NoAdapter(f"invalid {place} {value!r}: expected {what}, such as ({value!r},)")


def _bases(subject: Any) -> list[str]:
    """Return the names of a class and its bases, each with the package that defines it."""
    kind = subject.func if isinstance(subject, functools.partial) else subject
    classes = inspect.getmro(kind) if inspect.isclass(kind) else ()
    return [f"{each.__module__.split('.')[0]}.{each.__qualname__}" for each in classes]


def _adapter(place: str) -> Callable[..., Trainer]:
    module, _, name = place.partition(":")
    return cast(Callable[..., Trainer], getattr(import_module(f"{__name__}.{module}"), name))


def _wrapped(place: str, argument: str, *, several: bool = False) -> Callable[[Any], Trainer]:
    return lambda subject: _adapter(place)(**{argument: (subject,) if several else subject})


def _refused(text: str) -> Callable[[Any], Trainer]:
    def refuse(subject: Any) -> Trainer:
        raise NoAdapter(text.format(name=name_of(subject)))

    return refuse


def _instance(kind: Callable[..., Any]) -> Trainer:
    try:
        return cast(Trainer, kind())
    except TypeError as error:
        if takes_nothing(kind):
            raise
        if not hasattr(kind, "lacks"):
            raise NoAdapter(_UNKNOWN.format(name=name_of(kind))) from error
        raise NoAdapter(f"the adapter {name_of(kind)} is created without arguments: {error}") from error


_MODULE = """{name} is a LightningModule, which has a network of its own. Say where the probe goes:

    from pv.suites.training_loop.adapters.lightning import Lightning

    class Adapter(Lightning):
        lacks = {{**Lightning.lacks, "schedule": "the module has a schedule of its own"}}  # if it has
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
        lacks = {{}}  # features that the loop does not have, with the reason
        not_claimed = {{}}  # ids of claims that it does not make, with the reason
        tolerance = 1e-6  # of gradients

        def run(self, job: Job) -> Report:
            model = job.model()
            ...  # train it on job.train, by the code under attack
            return Report(model=model)

For a loop in parts (update, evaluate, save, load), subclass HandWritten of
pv.suites.training_loop.adapters.handwritten instead."""

_VALUES = {
    "lacks": "a dictionary of features to reasons",
    "not_claimed": "a dictionary of ids of claims to reasons",
    "has": "a sequence of features",
    "without": "a sequence of features",
    "logged": "a sequence of `loss`, `rate` and `norm`",
    "tolerance": "a number",
    "tokens": "a sequence of ids",
    "frozen": "a sequence of patterns of names",
    "tied": "a sequence of pairs of names",
    "end": "the id of a token",
}
"""The attributes of an adapter that are not methods."""

_WRAPPED: dict[str, Callable[[Any], Trainer]] = {
    "trl.SFTTrainer": _wrapped("trl:TRL", "trainer"),
    "trl._BaseTrainer": _refused(_ANOTHER_TASK),
    "transformers.Trainer": _wrapped("transformers:Transformers", "trainer"),
    "transformers.TrainerCallback": _wrapped("transformers:Transformers", "callbacks", several=True),
    "lightning.LightningModule": _refused(_MODULE),
    "lightning.Callback": _wrapped("lightning:Lightning", "callbacks", several=True),
    "pytorch_lightning.LightningModule": _refused(_OTHER_LIGHTNING),
    "pytorch_lightning.Callback": _refused(_OTHER_LIGHTNING),
}

"""A job that notes which of its settings an adapter reads: a setting that it ignores says nothing of the trainer."""

from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import Any, ClassVar
from unittest import SkipTest

from pv.suites.training_loop.job import FEATURES, RARE, Job

_DEFAULTS = {each.name: each.default for each in fields(Job)}

_LOGGED = {"loss", "rate", "norm"}
_OWN = {
    "schedule": {"schedule", "warmup"},
    "warmup": {"warmup"},
    "optimizer": {"optimizer"},
    "cadence": {"eval_every", "save_every"},
    "eval_batch": {"eval_batch"},
    "log_every": {"log_every"},
}
"""The settings that a trainer with one schedule, optimizer or cadence of its own does not read, by the feature."""
_FEATURES = {name: feature for feature, names in _OWN.items() for name in names} | {
    "evaluated": "evaluate",
    "stop_at": "stop",
    "pad_multiple": "padding",
    "rate": "",
}
"""The feature that a setting belongs to, where it has another name; the feature `rate` is that it is logged."""


class WatchedJob(Job):
    """A job whose reads are noted, here and in copies of it."""

    __slots__ = ()
    read: ClassVar[set[str]] = set()  # a frozen job has no place for it

    def __getattribute__(self, name: str) -> Any:
        if name in _DEFAULTS:
            WatchedJob.read.add(name)
        return object.__getattribute__(self, name)


def watched(job: Job) -> WatchedJob:
    """Return the job with nothing noted yet."""
    copy = WatchedJob(**{name: getattr(job, name) for name in _DEFAULTS})
    WatchedJob.read.clear()
    return copy


def refuse_unread(job: Job, lacks: Collection[str] = ()) -> None:
    """Raise SkipTest if a setting of the job was not read since `watched`: then the run is not the one asked for.

    A resumed run need not read all of them, since it may be at its end, one with `max_steps` not `epochs`, one that
    never evaluates not what is evaluated, one of a trainer that lacks every logged number not `log_every`, and one that
    lacks schedules or a choice of optimizers not those.
    """
    if job.resume is not None:
        return
    used = {name for name, value in _DEFAULTS.items() if value is not MISSING and getattr(job, name) != value}
    used -= {"epochs"} if job.max_steps is not None else set()
    used = used.difference(*(settings for feature, settings in _OWN.items() if feature in lacks))
    used -= {"evaluated", "eval_batch"} if not job.eval_every else set()
    used -= {"log_every"} if _LOGGED <= set(lacks) else set()
    if unread := sorted(used - WatchedJob.read):
        hints = (f"job.{name}: use it{_otherwise(name)}" for name in unread)
        raise SkipTest(f"the adapter does not read {'; '.join(hints)}")


def feature_of(setting: str) -> str:
    """Return the feature that a setting of a job belongs to; another name if every loop has it."""
    return _FEATURES.get(setting, setting)


def _otherwise(setting: str) -> str:
    """Return what else an adapter can do than hand a setting to the loop; "" if every loop has it."""
    if setting == "seed":
        return ", as by `torch.manual_seed(job.seed)` for a loop without a seed of its own"
    feature = feature_of(setting)
    where = "leave {} out of `has`" if feature in RARE else "name {} in `without`"
    own = " (a schedule of the loop's own: read it, and define `expected_rate`)" if setting == "schedule" else ""
    return f"{own}, or {where.format(f'`{feature}`')}" if feature in FEATURES else ""

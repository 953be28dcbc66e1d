"""Wraps a job to detect settings that the adapter never reads: the run is then not the run that was asked for."""

from collections.abc import Collection
from dataclasses import MISSING, fields
from typing import Any, ClassVar
from unittest import SkipTest

from pv.suites.training_loop.features import LOGGED
from pv.suites.training_loop.job import FEATURES, RARE, Job

_DEFAULTS = {field.name: field.default for field in fields(Job)}

_SETTINGS = {
    "schedule": {"schedule", "warmup"},
    "warmup": {"warmup"},
    "optimizer": {"optimizer"},
    "cadence": {"eval_every", "save_every"},
    "eval_batch": {"eval_batch"},
    "log_every": {"log_every"},
}
"""The settings that a trainer without a feature does not read, since it has one fixed value for each."""
_FEATURES = {name: feature for feature, names in _SETTINGS.items() for name in names} | {
    "evaluated": "evaluate",
    "stop_at": "stop",
    "pad_multiple": "padding",
    "rate": "",
}
"""The feature of a setting that has another name; the feature `rate` is that the rate is logged."""


class TrackedJob(Job):
    """A job that records which of its settings are read, also from copies of it."""

    __slots__ = ()
    # On the class: instances of a frozen dataclass with slots have no place for it, and copies must share it.
    read: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in _DEFAULTS:
            TrackedJob.read.add(name)
        return object.__getattribute__(self, name)


def track_reads(job: Job) -> TrackedJob:
    """Return a copy of a job that records which of its settings are read from now on."""
    copy = TrackedJob(**{name: getattr(job, name) for name in _DEFAULTS})
    TrackedJob.read.clear()
    return copy


def refuse_unread(job: Job, missing: Collection[str] = ()) -> None:
    """Check that the adapter has read every setting of a job that differs from its default, since `track_reads`.

    Exempt are

    1. all settings in a resumed run, which may be at its end;
    2. `epochs` if `max_steps` is set;
    3. `evaluated` and `eval_batch` in a run that never evaluates;
    4. `log_every` of a trainer that logs no number;
    5. the settings of missing features, such as `schedule` and `optimizer`.

    Args:
        job: The job that was run.
        missing: Features that the trainer does not have.

    Raises:
        SkipTest: A setting was not read. The text says what to do.
    """
    if job.resume is not None:
        return
    used = {name for name, value in _DEFAULTS.items() if value is not MISSING and getattr(job, name) != value}
    used -= {"epochs"} if job.max_steps is not None else set()
    used = used.difference(*(settings for feature, settings in _SETTINGS.items() if feature in missing))
    used -= {"evaluated", "eval_batch"} if not job.eval_every else set()
    used -= {"log_every"} if {*LOGGED} <= set(missing) else set()
    if unread := sorted(used - TrackedJob.read):
        hints = (f"job.{name}: use it{_alternative(name)}" for name in unread)
        raise SkipTest(f"the adapter does not read {'; '.join(hints)}")


def feature_of(setting: str) -> str:
    """Return the feature that a setting of a job belongs to, or a name that is no feature if every loop has it."""
    return _FEATURES.get(setting, setting)


def _alternative(setting: str) -> str:
    """Return what an adapter can do if the loop does not take a setting; "" if every loop takes it."""
    if setting == "seed":
        return ", as by `torch.manual_seed(job.seed)` for a loop without a seed of its own"
    feature = feature_of(setting)
    if feature not in FEATURES:
        return ""
    documented = " (a schedule of the loop's own: read it, and define `expected_rate`)" if setting == "schedule" else ""
    # A rare feature is tried only where `features` says True.
    hint = "leave `{}` out of `features`" if feature in RARE else "name `{}` as missing in `features`"
    return f"{documented}, or {hint.format(feature)}"

"""Read the features that an adapter declares, restrict jobs to them, and check the declarations.

An adapter declares features in one mapping, `features`: True for a feature that the trainer has, and the reason for a
feature that it does not have. Examples of trainers with missing features are loops with one label per example, loops
that score every token, and loops that count only steps or only epochs. `restrict_job` changes a job so that such a
trainer can run it.
"""

import inspect
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import replace
from itertools import cycle, islice
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

from pv.errors import PvError
from pv.suites.bench import name_of, unknown_feature
from pv.suites.training_loop.job import ATTRIBUTES, FEATURES, IGNORED, OPT_IN, Example, Job

if TYPE_CHECKING:
    from pv.suites.training_loop.run import Run


Features: TypeAlias = Mapping[str, bool | str]
"""By the name of a feature: True if the trainer has the feature, else the reason, or False to give no reason."""
LOGGED = ("loss", "rate", "norm")
"""The features that are numbers in the logs of a report, without the opt-in feature `tokens`."""
FIXED_LENGTH = 5
"""Length of all rows, in tokens, for a trainer with `sequences` but without `lengths`."""
_NEED_SEQUENCES = ("masks", "gaps", "lengths", "padding", "noise")
"""The features that a trainer without `sequences` does not have either."""
_DECLARED_FALSE = "`features` of its adapter says False"
_NOT_DECLARED = "`features` of its adapter does not name it"


def declared_features(trainer: object) -> dict[str, bool | str]:
    """Return the features that an adapter declares, including the declarations of its base classes.

    The `features` of a class extend the `features` of its base classes, and the `features` of an object extend the
    `features` of its class. The attributes of version 0.2 (`has`, `lacks`, `without`, `logged`) are read, too.

    Args:
        trainer: An adapter.

    Returns:
        By feature: True if the trainer has the feature, else the reason, or False to give no reason.
    """
    features, old = _merged_features(trainer), _old_names(trainer)
    return _from_old_names(features, old) if old else features


def _merged_features(trainer: object) -> dict[str, bool | str]:
    """Return the `features` of an adapter, merged with the features of its base classes."""
    # A class declares only the differences from its base class. So merge the mappings of all classes, base class first.
    declared: dict[str, bool | str] = {}
    for owner in reversed(type(trainer).__mro__):
        value = vars(owner).get("features")
        declared |= value if isinstance(value, Mapping) else {}
    # The attribute may also be a property, or be set on the object, such as by the arguments of `Transformers`.
    return declared | dict(getattr(trainer, "features", {}))


def missing_features(trainer: object) -> dict[str, str]:
    """Return the reasons of all features that a trainer does not have.

    1. Features that its adapter declares to be missing.
    2. Features of `OPT_IN` that the adapter does not declare and has no attribute for.
    3. Features that depend on a missing feature.

    Args:
        trainer: An adapter.

    Returns:
        Reasons by feature.
    """
    declared = declared_features(trainer)
    with_attribute = {name for name in ATTRIBUTES if getattr(trainer, name, None) is not None}
    missing = dict.fromkeys(sorted(OPT_IN - declared.keys() - with_attribute), _NOT_DECLARED)
    reasons = {name: value for name, value in declared.items() if value is not True}
    missing |= {name: _DECLARED_FALSE if value is False else str(value) for name, value in reasons.items()}
    return implied_missing(missing)


def implied_missing(missing: Mapping[str, str]) -> dict[str, str]:
    """Return missing features, and the features that depend on them.

    1. Without `sequences`, an example has one label, so there are no masks, gaps, lengths, padding and noise.
    2. Without masks and lengths, all examples have the same number of scored tokens: `unequal` is missing.
    3. Without epochs, no window ends with an epoch: `short_windows` is missing.

    Args:
        missing: Reasons by feature.

    Returns:
        Reasons by feature. The reasons in `missing` are not replaced.
    """
    reasons = dict(missing)
    if "sequences" in reasons:
        one_label = f"an example has one label ({reasons['sequences']})"
        reasons = dict.fromkeys(_NEED_SEQUENCES, one_label) | reasons
    if {"masks", "lengths"} <= reasons.keys():
        reasons.setdefault("unequal", f"every example has the same number of scored tokens ({reasons['lengths']})")
    if "epochs" in reasons:
        reasons.setdefault("short_windows", f"there are no epochs ({reasons['epochs']})")
    return reasons


def has_feature(trainer: object, name: str) -> bool:
    """Return whether an adapter declares a feature as True."""
    return declared_features(trainer).get(name) is True


def restrict_job(job: Job, missing: Collection[str], ranks: int = 1) -> Job:
    """Return a job that a trainer without some features can run.

    1. Without `accumulate`, a batch has the examples of a whole window.
    2. Without `max_steps`, the number of steps becomes a number of epochs, rounded up.
    3. Without `epochs`, the number of epochs becomes a number of steps.
    4. Without `warmup`, the setting is 0; without `log_every`, it is 1; without `eval_batch`, it equals `batch`.
    5. Without `sequences`, `lengths`, `masks` or `gaps`, the examples are changed.

    Args:
        job: A job for a trainer with all features.
        missing: Features that the trainer does not have.
        ranks: Number of processes, by which the number of steps is divided.
    """
    if "accumulate" in missing:
        job = replace(job, batch=job.batch * job.accumulate, accumulate=1)
    if "max_steps" in missing and job.max_steps is not None:
        per_epoch = planned_steps(job, ranks) // job.epochs
        job = replace(job, epochs=math.ceil(job.max_steps / per_epoch), max_steps=None)
    if "warmup" in missing:
        job = replace(job, warmup=0)
    return replace(
        job,
        train=tuple(_restrict_example(example, set(missing)) for example in job.train),
        evaluated=tuple(_restrict_example(example, set(missing)) for example in job.evaluated),
        log_every=1 if "log_every" in missing else job.log_every,
        max_steps=job.max_steps or (planned_steps(job, ranks) if "epochs" in missing else None),
        eval_batch=job.batch if "eval_batch" in missing else job.eval_batch,
    )


def planned_steps(job: Job, ranks: int = 1) -> int:
    """Return the number of steps that the epochs of a job take if the last window of an epoch may be shorter.

    Args:
        job: A job.
        ranks: Number of processes that share the examples.
    """
    return job.epochs * math.ceil(len(job.train) / (job.batch * job.accumulate * ranks))


def _restrict_example(example: Example, missing: Set[str]) -> Example:
    """Return an example that a trainer without some of `sequences`, `lengths`, `masks` and `gaps` can use.

    The first token is the name of the example and does not change.
    """
    tokens, labels = example.tokens, example.labels
    if "sequences" in missing:
        return Example(tokens[:2], (labels[0], tokens[1]))
    # Shorten or repeat the tokens after the name.
    if "lengths" in missing:
        tokens, labels = ((row[0], *islice(cycle(row[1:]), FIXED_LENGTH - 1)) for row in (tokens, labels))
    # Without gaps, as many tokens are not scored as before, but these tokens come first, like a prompt.
    ignored = 0 if "masks" in missing else labels[1:].count(IGNORED)
    if missing & {"masks", "gaps"}:
        labels = (labels[0], *(IGNORED,) * ignored, *tokens[1 + ignored :])
    return Example(tokens, labels)


# Adapters of version 0.2: the code from here to `old_contradictions` will be removed in version 0.5.

OLD_NAMES = ("has", "lacks", "without", "logged")


class OldLacks:
    """The attribute `lacks` of the adapters in `pv`, as in version 0.2: the reasons of missing features, by feature.

    Subclasses written for version 0.2 extend it: `lacks = {**Lightning.lacks, "schedule": "..."}`.
    """

    def __get__(self, trainer: object, owner: type) -> dict[str, str]:
        declared: dict[str, bool | str] = {}
        for base in reversed(owner.__mro__):
            declared |= vars(base).get("features", {})
        declared |= vars(trainer).get("features", {}) if trainer is not None else {}
        present = {*getattr(owner, "has", ()), *getattr(owner, "logged", ())}
        return {name: str(reason) for name, reason in declared.items() if reason is not True and name not in present}


def _old_names(trainer: object) -> dict[str, Any]:
    """Return the values of the old names that the author of an adapter uses."""
    static = {name: inspect.getattr_static(trainer, name, None) for name in OLD_NAMES}
    return {
        name: getattr(trainer, name)
        for name, value in static.items()
        if value is not None and not isinstance(value, OldLacks) and not callable(value)
    }


def _from_old_names(features: Features, old: Mapping[str, Any]) -> dict[str, bool | str]:
    """Translate old names into features.

    Args:
        features: The `features` of the adapter and its base classes.
        old: The values of the old names. Each name replaces the same name of the base class, as in version 0.2.
    """
    present = {*old["has"]} if "has" in old else {name for name, value in features.items() if value is True}
    present |= {*old.get("logged", ())}
    inherited = {name: value for name, value in features.items() if value is not True and name not in present}
    missing = dict(old["lacks"]) if "lacks" in old else inherited
    current: dict[str, bool | str] = {}
    current |= dict.fromkeys(sorted(present), True) | dict.fromkeys(old.get("without", ()), False) | missing
    # A feature of the base class that an old name did not repeat was reset to its default.
    for name, value in features.items():
        if name not in current and (value is True or name not in OPT_IN):
            current[name] = value is not True
    return current


def old_names_notice(trainer: object) -> str:
    """Return a message with the names of version 0.2 that an adapter uses, and their replacement; "" without any."""
    old = _old_names(trainer)
    if not old:
        return ""
    features = _merged_features(trainer)
    # Leave out the features that the base class declares with the same value.
    changed = {name: value for name, value in _from_old_names(features, old).items() if features.get(name) != value}
    names = ", ".join(f"`{name}`" for name in old)
    parts = ", ".join(f'"{feature}": {value!r}' for feature, value in changed.items())
    return f"{type(trainer).__qualname__}: {names} will not be read from version 0.5 on; write `features = {{{parts}}}`"


def old_contradictions(trainer: object) -> Iterator[str]:
    """Yield a message for each feature that old names declare both present and missing, and each unknown number."""
    old = _old_names(trainer)
    missing = dict.fromkeys(old.get("lacks", ()), "lacks") | dict.fromkeys(old.get("without", ()), "without")
    for attribute in ("has", "logged"):
        for name in sorted({*old.get(attribute, ())} & missing.keys()):
            yield f"`{attribute}` names {name!r}, and so does `{missing[name]}`"
    for name in old.get("logged", ()):
        if name not in LOGGED:
            yield f"`logged` names an unknown number {name!r}: expected loss, rate or norm"


REQUIRED_ATTRIBUTES = {
    "network": ("network", "logits", "tokens", "frozen"),
    "network_optimizer": ("network_optimizer",),
    "network_evaluation": ("evaluate_network",),
    "network_loss": ("network_loss",),
    "checkpointing": ("network_loss",),
    "autocast": ("network_loss",),
    "end": ("end",),
    "newest": ("newest",),
}
"""By feature: the attributes that an adapter with the feature must have."""
EXPECTED_VALUES = {
    "features": "a dictionary of features to True, or to the reason why the loop does not have it",
    "not_claimed": "a dictionary of ids of claims to reasons",
    "tolerance": "a number",
    "tokens": "a sequence of ids",
    "frozen": "a sequence of patterns of names",
    "tied": "a sequence of pairs of names",
    "end": "the id of a token",
    "lacks": "a dictionary of features to reasons",
    "has": "a sequence of features",
    "without": "a sequence of features",
    "logged": "a sequence of `loss`, `rate` and `norm`",
}
"""By attribute of an adapter that is not a method: its expected value, as text for error messages."""


class NoAdapter(PvError, TypeError):
    """A subject is no adapter, or an attribute of an adapter is invalid; the text says what to write."""


class Contradiction(PvError):
    """The declarations of an adapter cannot all be true; the text names them."""


def check_adapter(trainer: object) -> None:
    """Check the declarations of an adapter before it runs a job.

    Args:
        trainer: The adapter.

    Raises:
        NoAdapter: A required attribute is missing or a method, `features` is invalid, or a feature is unknown.
        Contradiction: A feature needs an attribute that the adapter does not have, or no feature ends a run. Names of
            version 0.2 declare a feature both present and missing, or name an unknown number.

    Warns:
        FutureWarning: The adapter uses names of version 0.2. The text says what to write.
    """
    for attribute in EXPECTED_VALUES:
        _check_value(trainer, attribute)
    for attribute in ("features", *OLD_NAMES[:-1]):
        for feature in getattr(trainer, attribute, ()):
            if feature not in FEATURES:
                place = f"{name_of(type(trainer))}.{attribute}"
                raise NoAdapter(f"{place} names an {unknown_feature(feature, FEATURES)}")
    if problems := [*old_contradictions(trainer), *_incomplete_declarations(trainer)]:
        raise Contradiction(f"{type(trainer).__qualname__} contradicts itself: {'; '.join(problems)}")
    if notice := old_names_notice(trainer):
        warnings.warn(notice, FutureWarning, stacklevel=2)


def _check_value(trainer: object, attribute: str) -> None:
    """Raise `NoAdapter` if an attribute of `EXPECTED_VALUES` is required and missing, or is a method.

    The types of `tolerance`, of `features` and of its values are checked too; `has` and `without` must not be text.
    """
    place, expected = f"{name_of(type(trainer))}.{attribute}", EXPECTED_VALUES[attribute]
    if callable(inspect.getattr_static(trainer, attribute, None)):
        raise NoAdapter(f"{place} must be {expected}, but it is a method: write an attribute or a property instead")
    if attribute in ("features", "tolerance") and not hasattr(trainer, attribute) and not hasattr(trainer, "lacks"):
        raise NoAdapter(f"missing attribute {place}: expected {expected}")
    # Without this check, a set or tuple of names, as in the old attributes, would raise an obscure error in `dict`.
    if attribute == "features":
        features = getattr(trainer, attribute, {})
        if not isinstance(features, Mapping):
            raise NoAdapter(f"invalid {place} {features!r}: expected {expected}")
        for feature, value in features.items():
            if not isinstance(value, bool) and not (isinstance(value, str) and value):
                raise NoAdapter(f"invalid {place}[{feature!r}] {value!r}: expected True, or a reason as text")
    if attribute == "tolerance":
        tolerance = getattr(trainer, attribute, 0.0)
        if not isinstance(tolerance, Real) or isinstance(tolerance, bool):
            raise NoAdapter(f"invalid {place} {tolerance!r}: expected {expected}")
    if attribute in ("has", "without") and isinstance(value := getattr(trainer, attribute, ()), str):
        raise NoAdapter(f"invalid {place} {value!r}: expected {expected}, such as ({value!r},)")


def _incomplete_declarations(trainer: object) -> Iterator[str]:
    """Yield a message for each declared feature without a required attribute, and one if no feature ends a run."""
    declared = declared_features(trainer)
    if all(declared.get(name, True) is not True for name in ("epochs", "max_steps")):
        yield "neither `epochs` nor `max_steps` ends a run"
    for name in (name for name, value in declared.items() if value is True):
        if missing := [part for part in REQUIRED_ATTRIBUTES.get(name, ()) if getattr(trainer, part, None) is None]:
            yield f"`features` has {name!r}, but the adapter has no `{'`, no `'.join(missing)}`"


def check_simplest_run(trainer: object, run: "Run") -> None:
    """Check that the simplest run reports nothing that the adapter declares to be missing.

    Args:
        trainer: The adapter.
        run: The run of the simplest job by this adapter.

    Raises:
        Contradiction: The run reports a feature that the adapter declares to be missing. The claims about the feature
            would not be tried.
    """
    missing = missing_features(trainer)
    reported = {name: any(name in row for row in run.logs) for name in LOGGED}
    reported |= {"evaluate": bool(run.evaluations), "save": bool(run.checkpoints), "events": bool(run.events)}
    reported |= {"best_step": run.best is not None, "best_model": bool(run.best_weights), "average": bool(run.average)}
    problems = [
        f"the simplest run reports `{name}`, which the trainer does not have according to `features` ({missing[name]})"
        for name, is_reported in reported.items()
        if is_reported and name in missing
    ]
    if problems:
        hint = "leave the feature out of the report, or set it to True in `features`, so that its claims are tried"
        raise Contradiction(f"{type(trainer).__qualname__} contradicts itself: {'; '.join(problems)}; {hint}")

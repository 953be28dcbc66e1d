import ast
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
import torch

from pv.suites.training_loop.adapters import NoAdapter, adapted
from pv.suites.training_loop.adapters.handwritten import HandWritten
from pv.suites.training_loop.adapters.lightning import Lightning
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.features import Contradiction, missing_features
from pv.suites.training_loop.job import Job, Report
from pv.suites.training_loop.loop import Loop
from pv.suites.training_loop.run import Run
from tests.suites.training_loop.planting import attack


class Own:
    features: Mapping[str, bool | str] = {}
    tolerance = 1e-9

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def run(self, job: Job) -> Report:
        return Report(model=job.model())


class Demanding(Own):
    def __init__(self, size: int) -> None:
        super().__init__(size)


def test_adapter_with_arguments_is_created_by_a_partial() -> None:
    with pytest.raises(NoAdapter, match="Demanding is created without arguments"):
        adapted(Demanding)
    assert adapted(partial(Demanding, 3)()).size == 3  # type: ignore[attr-defined]


class OfConfig:
    """A trainer, and no adapter of one."""

    def __init__(self, config: object) -> None:
        self.config = config

    def run(self) -> None: ...


@pytest.mark.parametrize("other", [object(), len, dict, 3, "transformers", OfConfig])
def test_other_subjects_are_refused_with_the_lines_to_write(other: object) -> None:
    with pytest.raises(NoAdapter, match=r"(?s)cannot adapt .*def run\(self, job: Job\) -> Report"):
        adapted(other)


@pytest.mark.parametrize("where", ["features", "lacks", "has", "without"])
def test_unknown_features_are_refused_with_the_nearest_known_one(where: str) -> None:
    with pytest.raises(NoAdapter, match=f"Own.{where} names an unknown feature 'evaluation'; did you mean 'evaluate'"):
        setattr(adapter := Own(3), where, {"evaluation": "none"})
        adapted(adapter)


def test_missing_and_invalid_values_are_refused() -> None:
    with pytest.raises(NoAdapter, match=r"missing attribute Bare\.features: expected a dictionary of features to True"):
        adapted(type("Bare", (), {"run": lambda self, job: None}))
    adapter = Own(3)
    adapter.without = "masks"  # type: ignore[attr-defined]
    with pytest.raises(NoAdapter, match=r"invalid Own\.without 'masks': expected a sequence of features, such as"):
        adapted(adapter)
    for tolerance in ("1e-6", True, None):
        with pytest.raises(NoAdapter, match=rf"invalid Adapter\.tolerance '?{tolerance}'?: expected a number"):
            adapted(type("Adapter", (Own,), {"tolerance": tolerance}))
    with pytest.raises(NoAdapter, match=r"Adapter\.tokens must be a sequence of ids, but it is a method: write an "):
        adapted(type("Adapter", (Own,), {"tokens": lambda self: range(9)}))


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"features": dict.fromkeys(("epochs", "max_steps"), False)}, "neither `epochs` nor `max_steps` ends a run"),
        ({"features": {"network_loss": True}}, "`features` has 'network_loss', but the adapter has no `network_loss`"),
        ({"features": {"network": True}, "tokens": (1, 2)}, "but the adapter has no `network`, no `logits`, no `f"),
        ({"has": ("groups",), "without": ("groups",)}, "`has` names 'groups', and so does `without`"),
        ({"has": ("average",), "lacks": {"average": "none"}}, "`has` names 'average', and so does `lacks`"),
        ({"logged": ("lr",)}, "`logged` names an unknown number 'lr': expected loss, rate or norm"),
        ({"logged": ("loss",), "without": ("loss",)}, "`logged` names 'loss', and so does `without`"),
    ],
)
def test_adapter_that_contradicts_itself_is_refused(attributes: dict[str, object], text: str) -> None:
    with pytest.raises(Contradiction, match=rf"Adapter contradicts itself: .*{text}"):
        adapted(type("Adapter", (Own,), attributes))


@pytest.mark.parametrize(
    ("features", "text"),
    [
        (("clip",), r"invalid Own\.features \('clip',\): expected a dictionary of features to True"),
        ({"clip": ""}, r"invalid Own\.features\['clip'\] '': expected True, or a reason as text"),
        ({"clip": 1}, r"invalid Own\.features\['clip'\] 1: expected True, or a reason as text"),
    ],
)
def test_values_of_features_that_say_nothing_are_refused(features: Any, text: str) -> None:
    adapter = Own(3)
    adapter.features = features
    with pytest.raises(NoAdapter, match=text):
        adapted(adapter)


class Parts(HandWritten):
    """An adapter as of version 0.2."""

    logged = ("loss",)
    has = ("keep", "average")
    without = ("clip", "epochs")


class Extended(Lightning):
    lacks = {**Lightning.lacks, "schedule": "the module has its own"}  # noqa: RUF012


class Reset(Own):
    """An adapter of version 0.2 that is no subclass of one that comes with `pv`."""

    lacks = {"events": "no callbacks"}  # noqa: RUF012
    has = ("crop",)


class Computed(HandWritten):
    @property
    def lacks(self) -> Mapping[str, str]:  # type: ignore[override]  # as of version 0.2
        return {**super().lacks, "clip": "no clipping"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (Parts, {"average": True, "keep": True, "loss": True, "clip": False, "epochs": False}),
        (Extended, {"schedule": "the module has its own"}),
        (Reset, {"crop": True, "events": "no callbacks"}),
        (Computed, {"clip": "no clipping"}),
    ],
)
def test_names_of_version_0_2_are_read_with_a_notice_of_what_to_write(old: Any, new: dict[str, object]) -> None:
    with pytest.warns(FutureWarning, match="will not be read from version 0.5 on; write `features = ") as warned:
        read = missing_features(adapted(old()))
    (notice,) = warned
    assert ast.literal_eval(str(notice.message).partition("`features = ")[2].rstrip("`")) == new
    (base,) = old.__bases__
    written = type("Written", (base,), {"features": new})()
    assert read == missing_features(adapted(written))


class Logging(Own):
    """Logs a loss, has an event and the weights of an average."""

    def run(self, job: Job) -> Report:
        model = job.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=job.rate)
        for i in range(0, len(job.train), job.batch * job.accumulate * job.epochs):
            model(job.collate([*job.train[i : i + job.batch]])["input_ids"]).sum().backward()
            optimizer.step()
        logs, evaluations = [{"step": 1, "loss": 0.0}], [(1, 0.0)]
        return Report(model=model, logs=logs, evaluations=evaluations, events=["train_begin"], average=model)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"features": {"loss": "none"}}, r"`loss`, which the trainer does not have according to `features` \(none\)"),
        ({"features": {"evaluate": False}}, "reports `evaluate`, which the trainer does not have according to"),
        ({"features": {"events": False}}, r"reports `events`, which the trainer does not have according to `features`"),
        ({}, "reports `average`, which .* does not name it\\); leave the feature out of the report, or set it to True"),
        ({"features": {"average": True}}, ""),
    ],
)
def test_run_that_shows_what_is_declared_to_be_missing_is_refused(attributes: dict[str, object], text: str) -> None:
    with pytest.raises(Contradiction, match=text) if text else nullcontext():
        Bench(adapted(type("Adapter", (Logging,), attributes))).warm_up()


def test_a_simplest_job_that_fails_in_ranks_is_not_tried_there_again(tmp_path: Path) -> None:
    class Failing(Bench):
        tries = 0

        def run(self, job: Job) -> Run:
            raise ArithmeticError("on one process")

        def ranks(self, job: Job, size: int) -> list[Run]:
            Failing.tries += 1
            raise ArithmeticError("in ranks")

    for _ in range(2):
        with pytest.raises(ArithmeticError, match="on one process"):
            Failing(Loop(), tmp_path).warm_up({"ranks"})
    assert Failing.tries == 1


class Bare(Loop):
    """Reports the model alone."""

    def run(self, job: Job) -> Report:
        return Report(model=super().run(job).model)


UNREPORTED = "STEP-003 LOG-001 LOG-006 RATE-002 CLIP-002 EVENT-001 EVENT-002 EVAL-001 EVAL-007 AVERAGE-001".split()


@pytest.mark.parametrize("claim", UNREPORTED)
def test_what_an_adapter_never_reports_leaves_its_claims_undecided(claim: str) -> None:
    with pytest.raises(SkipTest, match="the adapter reports no `"):
        attack(f"TL-{claim}", Bench(Bare()))

"""The table of the documentation has every field of a job, with its default, and names features that exist."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from pv.suites.training_loop.adapters.handwritten import HandWritten
from pv.suites.training_loop.adapters.usual import Classifier, classified
from pv.suites.training_loop.bench import Bench
from pv.suites.training_loop.job import FEATURES, OPT_IN, Job, Report
from pv.suites.training_loop.run import feature_of
from tests.suites.training_loop.planting import attack

PAGE = (Path(__file__).parents[3] / "docs/adapters.md").read_text()
TABLE = PAGE[PAGE.index("## What a job asks for") : PAGE.index("## The network of the loop")]
ROWS = [[cell.strip() for cell in line.split(" | ")] for line in TABLE.splitlines() if line.startswith("| `")]


def test_every_field_of_a_job_has_its_default_in_the_table() -> None:
    table: dict[str, str] = {}
    for names, defaults, _, _ in ROWS:
        table |= dict(zip(re.findall(r"`(\w+)`", names), defaults.replace("`", "").split(", "), strict=True))
    defaults_of = {field.name: "-" if field.default is MISSING else repr(field.default) for field in fields(Job)}
    assert table == {name: default.replace("'", '"') for name, default in defaults_of.items()}


def test_fields_that_may_be_ignored_are_those_of_features() -> None:
    for names, _, _, ignored in ROWS:
        for name in re.findall(r"`(\w+)`", names):
            feature = feature_of(name)
            if ignored.startswith(("lacks", "`evaluated`: lacks")) and name not in ("train", "resume"):
                assert f"lacks `{feature}`" in ignored and feature in FEATURES - OPT_IN
            elif ignored.startswith("not in"):
                assert feature in OPT_IN
            else:
                assert feature not in FEATURES or name in ("train", "tied", "resume")


@pytest.mark.parametrize("faulty", [False, True])
def test_model_of_a_squared_error_has_the_gradient_of_the_suite(faulty: bool) -> None:
    (code,) = re.findall(r"```python\n(class Regressor.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"Classifier": Classifier, "cross_entropy": cross_entropy}
    exec(code, names)
    regressor: Callable[[Any], Any] = names["Regressor"]

    class Fitting(HandWritten):
        features = dict.fromkeys(
            "sequences accumulate freeze clip optimizer schedule evaluate save max_steps".split(), False
        )

        def run(self, job: Job) -> Report:
            model = regressor(job.model())
            optimizer = torch.optim.SGD(model.parameters(), lr=job.rate)
            rows = torch.stack([torch.tensor([x.item(), y]) for x, y in classified(job.train)])
            for batch in rows.split(job.batch) * job.epochs:
                optimizer.zero_grad()
                mse_loss(model(batch), torch.zeros(len(batch), dtype=torch.float64)).mul(1 + faulty).backward()
                optimizer.step()
            return Report(model=model)

    with pytest.raises(AssertionError, match="is 2 times the gradient") if faulty else nullcontext():
        attack("TL-GRAD-001", Bench(Fitting()))

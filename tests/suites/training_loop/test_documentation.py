"""The table of the documentation has every field of a job, with its default, and names features that exist."""

import re
from dataclasses import MISSING, fields
from pathlib import Path

from pv.suites.training_loop.job import FEATURES, RARE, Job
from pv.suites.training_loop.unread import feature_of

PAGE = (Path(__file__).parents[3] / "docs/adapters.md").read_text()
TABLE = PAGE[PAGE.index("## What a job asks for") : PAGE.index("## The network of the loop")]
ROWS = [[cell.strip() for cell in line.split(" | ")] for line in TABLE.splitlines() if line.startswith("| `")]


def test_every_field_of_a_job_has_its_default_in_the_table() -> None:
    found: dict[str, str] = {}
    for names, defaults, _, _ in ROWS:
        found |= dict(zip(re.findall(r"`(\w+)`", names), defaults.replace("`", "").split(", "), strict=True))
    defaults_of = {each.name: "-" if each.default is MISSING else repr(each.default) for each in fields(Job)}
    assert found == {name: default.replace("'", '"') for name, default in defaults_of.items()}


def test_fields_that_may_be_ignored_are_those_of_features() -> None:
    for names, _, _, ignored in ROWS:
        for name in re.findall(r"`(\w+)`", names):
            feature = feature_of(name)
            if ignored.startswith(("lacks", "`evaluated`: lacks")) and name not in ("train", "resume"):
                assert f"lacks `{feature}`" in ignored and feature in FEATURES - RARE
            elif ignored.startswith("not in"):
                assert feature in RARE
            else:
                assert feature not in FEATURES or name in ("train", "tied", "resume")

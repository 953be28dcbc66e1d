"""An attack on the time of refusals: a predicate over the run of `falsifiers/settings/runs.py`."""

from __future__ import annotations

from typing import Any

from falsifiers.distill_smoke.cases import changes


def falsify_refused_before_anything_is_loaded(run: Any) -> None:
    for said in run.result:
        case = f"{said['origin']} = {said['value']}: exit {said['exit_code']}, {said['complaints']}"
        assert said["exit_code"] == 2, f"{case}; expected 2"
        assert len(said["complaints"]) == 1 and said["origin"] in said["complaints"][0], f"{case}; expected one line"
        assert said["lines"] == [], f"{case}; it printed {said['lines']}"
        assert "click" in said["imported"], f"{case}; its imports are not known"
        assert "torch" not in said["imported"], f"{case}; torch was imported before the refusal"
        changed = changes(said["before"], said["after"])
        assert not changed, f"{case}; it changed {changed}"

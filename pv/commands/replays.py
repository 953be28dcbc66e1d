"""Writes counterexamples that are too long for a command line to files, which `--replay @FILE` reads."""

import json
from contextlib import suppress
from dataclasses import replace

from pv.contract.load import shown_path
from pv.engines.replay import MAX_INLINE
from pv.results import store
from pv.results.trial import Evidence, Trial
from pv.source.project import Project

FOLDER = ".pv_cache/replay"


def write_replays(project: Project, evidence: Evidence) -> Evidence:
    """Return the evidence with the file of each long counterexample, which is written."""
    return replace(evidence, trials={key: _write_replay(project, trial) for key, trial in evidence.trials.items()})


def _write_replay(project: Project, trial: Trial) -> Trial:
    found = trial.counterexample or trial.current_arguments
    text = json.dumps(dict(found.arguments)) if found is not None and found.exact else ""
    if found is None or len(text) <= MAX_INLINE:
        return trial
    path = project.root / FOLDER / f"{trial.falsifier}-{trial.device}.json"
    with suppress(OSError):  # the report then prints the example itself
        store.write_whole(path, text)
        found = replace(found, file=str(shown_path(path)))
        return replace(trial, counterexample=found) if trial.counterexample else replace(trial, current_arguments=found)
    return trial

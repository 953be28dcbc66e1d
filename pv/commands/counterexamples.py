"""Complete counterexamples: add the code that failed, and write arguments too long for a command line to a file."""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pv.contract.load import shown_path
from pv.contract.model import Contract, Falsifier, Target, UnknownName
from pv.engines.replay import MAX_INLINE
from pv.engines.trial import Code, Trial
from pv.results import store
from pv.results.evidence import Evidence
from pv.source import resolve, syntax
from pv.source.project import Project
from pv.source.resolve import Unbound

MAX_CODE = 30
"""Maximum number of code locations that are added to a counterexample."""
FRAME = re.compile(r"(?P<file>.+?):(?P<line>\d+) in (?P<name>\S+): .*", re.DOTALL)
"""A frame as `pv.engines.failures` writes it."""


def locate_code(project: Project, contract: Contract, evidence: Evidence) -> Evidence:
    """Add code locations to every counterexample.

    These are the innermost line of the traceback that is in a file of the functions that ran, then the functions that
    the claim names, then all other functions that ran.
    """
    claims = {claim.id: claim for claim in contract.claims}
    trials = {key: _add_code(project, contract, claims.get(key[0]), trial) for key, trial in evidence.trials.items()}
    return replace(evidence, trials=trials)


def _add_code(project: Project, contract: Contract, claim: Falsifier | None, trial: Trial) -> Trial:
    if claim is None or trial.counterexample is None:
        return trial
    # A name with "@" in `reached` is a statement, not a function.
    ran = sorted(name for name in trial.reached if "@" not in name)
    claimed = [name for name in _claimed_functions(project, contract, claim) if name in ran]
    spans = list(_spans(project, [*claimed, *ran]))
    # A frame in another file belongs to a library or to the test, which need not be fixed.
    files = {span.path for span in spans}
    raised = [code for code in _frames(project, trial.counterexample.frames) if code.path in files]
    code = tuple(dict.fromkeys([*raised[-1:], *spans]))
    return replace(trial, counterexample=replace(trial.counterexample, code=code[:MAX_CODE]))


def _claimed_functions(project: Project, contract: Contract, claim: Falsifier) -> Iterator[str]:
    """Yield the names that a claim uses, as `module:name`: attributes of its subject, then the subject."""
    with suppress(LookupError, UnknownName, Unbound):
        subject = contract.subject_of(claim)
        prefix = f"{subject.attribute}." if subject.attribute else ""
        for name in _used_attributes(project, contract, claim):
            yield f"{subject.module}:{prefix}{name}"
        yield str(subject)


def _used_attributes(project: Project, contract: Contract, claim: Falsifier) -> list[str]:
    """Return the attributes of the subject that the test of a claim reads, or that its equation calls."""
    if claim.test is None:
        equation = next((equation for equation in contract.equations if equation.name == claim.equation), None)
        text = equation.executable.get("implemented_by", "") if equation is not None else ""
        return re.findall(r"[A-Za-z_][\w.]*(?=\()", text)  # every dotted name before "("
    names: list[str] = []
    for node in ast.walk(resolve.function(project, claim.test).node):
        text = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        names += [text.removeprefix("subject.")] if text.startswith("subject.") else []
    return names


def _spans(project: Project, names: Iterable[str]) -> Iterator[Code]:
    """Yield the locations of functions named `module:name`; skip a function whose source cannot be read."""
    for name in dict.fromkeys(names):
        target = Target.parse(name)
        with suppress(Unbound, OSError):
            path = resolve.find_module(project, target.module)
            functions = dict(syntax.functions(resolve.parse(path))) if path is not None else {}
            node = functions.get(target.attribute)
            if path is not None and node is not None:
                yield Code(str(shown_path(path)), node.lineno, node.end_lineno or node.lineno, target.attribute)


def _frames(project: Project, frames: Iterable[str]) -> Iterator[Code]:
    """Yield the locations of the lines of a traceback, the innermost last."""
    for frame in frames:
        if (match := FRAME.fullmatch(frame)) is not None:
            path, line = shown_path(project.root / Path(match["file"])), int(match["line"])
            yield Code(str(path), line, line, match["name"])


REPLAY_FOLDER = ".pv_cache/replay"
"""The folder, below the root of a project, of files with the arguments of a counterexample (`--replay @FILE`)."""


def write_replays(project: Project, evidence: Evidence) -> Evidence:
    """Write arguments that are exact and too long for a command line to a file; add its path.

    These are the arguments of a counterexample or, in a trial without one, of the call that was running at its end.
    """
    return replace(evidence, trials={key: _write_replay(project, trial) for key, trial in evidence.trials.items()})


def _write_replay(project: Project, trial: Trial) -> Trial:
    example = trial.counterexample or trial.current_arguments
    text = json.dumps(dict(example.arguments)) if example is not None and example.exact else ""
    if example is None or len(text) <= MAX_INLINE:
        return trial
    path = project.root / REPLAY_FOLDER / f"{trial.falsifier}-{trial.device}.json"
    try:
        store.write_atomically(path, text)
    except OSError:
        return trial  # the report prints the example itself
    example = replace(example, file=str(shown_path(path)))
    if trial.counterexample is None:
        return replace(trial, current_arguments=example)
    return replace(trial, counterexample=example)

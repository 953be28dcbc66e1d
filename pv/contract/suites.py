"""The conformance suites that come with `pv`, and the contracts that apply one to another subject."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pv.contract import plugins
from pv.contract.claims import Falsifier
from pv.contract.model import Contract
from pv.errors import PluginError

OBSERVED = "training-run"
"""The suite that judges the traces of observed scripts."""
ALL = "all"
"""The name that stands for all claims of an observed run."""
FOLDER = Path(__file__).resolve().parents[1] / "suites"


def suites() -> dict[str, Path]:
    """Return the contract file of every suite by its name: those of `pv`, then those of other packages.

    Raises:
        PluginError: A suite of another package has no contract, or the name of a suite of `pv`.
    """
    files = {path.stem: path for path in sorted(FOLDER.glob("*/*.yaml"))}
    for name, (_, folder) in plugins.suite_folders().items():
        file = folder / f"{name}.yaml"
        if name in files or not file.is_file():
            problem = "that is a suite of pv" if name in files else f"there is no {file}"
            raise PluginError(f"invalid entry point {name!r} in {plugins.SUITES}: {problem}")
        files[name] = file
    return files


def adapter_suites() -> dict[str, Path]:
    """Return the contract file of every suite whose subject is an adapter: all but the one that judges traces."""
    return {name: path for name, path in suites().items() if name != OBSERVED}


def is_suite(contract: Contract) -> bool:
    """Return whether a contract is that of a suite, with mutants of the suite's own subject."""
    return contract.suite is None and any("needs" in claim.options for claim in contract.falsifiers)


def applied(suite: Contract) -> Contract:
    """Return the contract of a suite for another subject, without the mutants, which are faults of the suite's own.

    The option `faults` of a claim names those that it kills there.
    """
    claims = (replace(each, kills=(), options={**each.options, "faults": each.kills}) for each in suite.falsifiers)
    return replace(suite, falsifiers=tuple(claims), mutants=())


def observed(suite: Contract) -> Contract:
    """Return the contract of the claims about a training run for one run, without the mutants that attack them."""
    return replace(suite, falsifiers=tuple(map(_observed, suite.falsifiers)), mutants=())


def _observed(claim: Falsifier, *, must_reach: bool = False) -> Falsifier:
    """Return a claim about a training run as one about an observed run, in place of the attack on the claim.

    The prediction and the guess of its author are about that attack: a finding has the numbers and the cause.
    """
    options = {"observed": claim.id, "must_reach": must_reach}
    return replace(claim, test=None, kills=(), prediction="", if_fails="", options=options)


def join_observed(contract: Contract, suite: Contract) -> Contract:
    """Return a contract with the claims of the observed runs before its own, as `CONTRACT.RUN.ID`.

    A claim that a run names must be reached; of those that `all` stands for, each may be not reached. A claim kills the
    mutants that name it in `killed_by` as `RUN.ID`.
    """
    claims = []
    for run in contract.runs:
        named = [name.text for name in run.claims]
        for claim in suite.falsifiers:
            if claim.id in named or named == [ALL]:
                id_ = f"{run.name}.{claim.id}"
                kills = tuple(each.id for each in contract.mutants if id_ in each.killed_by)
                joined = replace(_observed(claim, must_reach=claim.id in named), id=f"{contract.id}.{id_}")
                claims.append(replace(joined, run=run.name, kills=kills, location=run.location, places={}))
    return replace(contract, falsifiers=(*claims, *contract.falsifiers))


def join_suite(contract: Contract, suite: Contract) -> Contract:
    """Return a contract with the claims of its suite before its own; their ids start with that of the contract.

    A claim of the suite kills the mutants that name it in `killed_by`.
    """

    def named(claim: Falsifier) -> Falsifier:
        options: dict[str, Any] = dict(claim.options)
        options |= {"premises": [f"{contract.id}.{id_}" for id_ in options.get("premises", ())]}
        place = contract.suite.location if contract.suite is not None else contract.location
        kills = tuple(each.id for each in contract.mutants if claim.id in each.killed_by)
        return replace(claim, id=f"{contract.id}.{claim.id}", options=options, kills=kills, location=place, places={})

    claims = map(named, applied(suite).falsifiers)
    return replace(contract, falsifiers=(*claims, *contract.falsifiers))

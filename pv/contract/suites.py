"""List the conformance suites, and add the claims of a suite to the contract of a subject."""

from dataclasses import replace
from pathlib import Path

from pv.contract import plugins
from pv.contract.model import Contract, Falsifier
from pv.errors import PluginError

OBSERVED = "training-run"
"""The suite that judges the traces of observed scripts."""
ALL = "all"
"""The value of `claims` in a run that means all claims of `OBSERVED`."""
FOLDER = Path(__file__).resolve().parents[1] / "suites"


def suites() -> dict[str, Path]:
    """Return the contract file of every suite by name: suites of `pv`, then suites of other packages.

    Raises:
        PluginError: A suite of another package has no contract, or has the name of a suite of `pv`.
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
    """Return the contract file of every suite whose subject is an adapter: all suites except `OBSERVED`."""
    return {name: path for name, path in suites().items() if name != OBSERVED}


def is_suite(contract: Contract) -> bool:
    """Return whether a contract defines a suite, rather than applies one to a subject."""
    # Only claims of suites have the option `needs`, the features of the subject that they need.
    return contract.suite is None and any("needs" in claim.options for claim in contract.falsifiers)


def for_other_subject(suite: Contract) -> Contract:
    """Return the contract of a suite for another subject.

    The mutants are left out, since they are faults of the subject that comes with the suite. The ids of the mutants
    that a claim kills are moved to its option `faults`.
    """
    claims = (replace(claim, kills=(), options={**claim.options, "faults": claim.kills}) for claim in suite.falsifiers)
    return replace(suite, falsifiers=tuple(claims), mutants=())


def for_observed_run(suite: Contract) -> Contract:
    """Return the contract of the suite `OBSERVED` for one observed run, without the mutants of the suite."""
    return replace(suite, falsifiers=tuple(map(_observed_claim, suite.falsifiers)), mutants=())


def _observed_claim(claim: Falsifier, *, must_reach: bool = False) -> Falsifier:
    """Return the claim about an observed run that corresponds to a claim of the suite.

    The suite attacks its claim with drawn traces. Its texts `prediction` and `if_fails` describe that attack, so they
    are removed; a finding in an observed run has its own numbers and cause.

    Args:
        claim: The claim of the suite.
        must_reach: Whether the claim is undecided if the trace has nothing for it to check; otherwise it then counts as
            not claimed.
    """
    options = {"observed": claim.id, "must_reach": must_reach}
    return replace(claim, test=None, kills=(), prediction="", if_fails="", options=options)


def join_observed(contract: Contract, suite: Contract) -> Contract:
    """Return a contract with the claims of its observed runs, whose ids are `CONTRACT.RUN.ID`, before its own claims.

    A claim that `claims` of the run names is undecided if the trace has nothing to check; with `all`, such a claim
    counts as not claimed. A claim kills the mutants whose `killed_by` has `RUN.ID`.
    """
    claims = []
    for run in contract.runs:
        ids = [name.text for name in run.claims]
        for claim in suite.falsifiers:
            if claim.id in ids or ids == [ALL]:
                id_ = f"{run.name}.{claim.id}"
                kills = tuple(mutant.id for mutant in contract.mutants if id_ in mutant.killed_by)
                joined = replace(_observed_claim(claim, must_reach=claim.id in ids), id=f"{contract.id}.{id_}")
                claims.append(replace(joined, run=run.name, kills=kills, location=run.location, places={}))
    return replace(contract, falsifiers=(*claims, *contract.falsifiers))


def join_suite(contract: Contract, suite: Contract) -> Contract:
    """Return a contract with the claims of its suite, whose ids are `CONTRACT.ID`, before its own claims.

    A claim of the suite kills the mutants whose `killed_by` has its id in the suite.
    """
    # Findings about these claims point to the line of the user's contract that names the suite, not to a file of `pv`.
    location = contract.suite.location if contract.suite is not None else contract.location
    claims = []
    for claim in for_other_subject(suite).falsifiers:
        premises = [f"{contract.id}.{id_}" for id_ in claim.options.get("premises", ())]
        options = {**claim.options, "premises": premises}
        kills = tuple(mutant.id for mutant in contract.mutants if claim.id in mutant.killed_by)
        id_ = f"{contract.id}.{claim.id}"
        claims.append(replace(claim, id=id_, options=options, kills=kills, location=location, places={}))
    return replace(contract, falsifiers=(*claims, *contract.falsifiers))

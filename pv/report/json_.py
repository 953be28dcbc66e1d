"""The report as JSON, for programs; its schema is published as `pv schema report`."""

import json

from pv.engines.trial import EquationMutant
from pv.report import View, details
from pv.report.contract_line import sentence
from pv.report.phrases import declared_tolerances
from pv.results.saved.report import Json, to_json
from pv.results.verdict import ContractVerdict, Report


def render(report: Report, view: View) -> str:
    """Return one JSON object, which `pv schema report` describes. The options in `view` have no effect."""
    return json.dumps(data(report), indent=1, ensure_ascii=False) + "\n"


def data(report: Report) -> dict[str, object]:
    """Return the report as a JSON object: the fields of the report, and derived fields.

    `pv report` also reads two of the derived fields: `tolerances`, and `location` of a surviving equation mutant.
    """
    saved = to_json(report)
    for contract, verdict in zip(saved["contracts"], report.contracts, strict=True):
        contract |= {"summary": sentence(verdict), "tolerances": list(declared_tolerances(verdict))}
        for item, result in zip(contract["results"], verdict.results, strict=True):
            item["repeat"] = details.command(result, verdict)
            if item["trial"] is not None:
                _locate_survivors(item["trial"], verdict)
    return saved


def _locate_survivors(trial: Json, verdict: ContractVerdict) -> None:
    """Add to every surviving equation mutant of a trial the location of the mutant in the contract, or None."""
    for survivor in trial["equation_mutants"]["survivors"] if trial["equation_mutants"] else ():
        location = details.mutant_location(EquationMutant(**survivor), verdict)
        survivor["location"] = to_json(location) if location is not None else None

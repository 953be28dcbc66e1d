"""Read reports that `--format json` wrote; refuse a file that is damaged or of another version."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from pv.contract.accepts import accepts
from pv.contract.check import schema
from pv.contract.claims import Equation, Falsifier, Harness
from pv.contract.finding import Finding, Location, Severity
from pv.contract.model import Contract, Gate, Waiver
from pv.contract.mutants import Edit, Mutant, MutationScope, Name, Swap
from pv.contract.names import Binding, Target
from pv.errors import UsageError
from pv.results import shard
from pv.results.outcome import Outcome, Result
from pv.results.steps import ObservedStep
from pv.results.trial import (
    Code,
    Counterexample,
    DeviceInfo,
    EquationMutant,
    EquationMutants,
    MutationScore,
    Output,
    Recorded,
    RunTrace,
    Trial,
    TrialStatus,
)
from pv.results.verdict import ContractVerdict, Report, Status

Data: TypeAlias = Mapping[str, Any]
"""A JSON object, which the schema has validated."""
Places: TypeAlias = Mapping[str, Mapping[tuple[int, int], Location]]


def _contract(data: Data, places: Places) -> Contract:
    """Return the parts of a contract that a saved verdict holds.

    Args:
        data: The verdict.
        places: Locations in the equations of the contract, by line and column.
    """
    here = Location(Path(data["path"]))
    scope, judges = ([Name(text=text, location=here) for text in data[key]] for key in ("mutation_scope", "judges"))
    claims = [_claim(item) for item in data["claims"]]
    return Contract(
        id=data["id"],
        version=data["version"],
        description="",
        location=here,
        strict=data["strict"],
        equations=tuple(_equations(data["tolerances"], places, here)),
        falsifiers=tuple(claim for claim in claims if not isinstance(claim, Harness)),
        harnesses=tuple(claim for claim in claims if isinstance(claim, Harness)),
        mutants=tuple(_mutant(mutant) for mutant in data["declared_mutants"]),
        mutation_scope=MutationScope(modules=tuple(scope), judges=tuple(judges)),
        gate=_gate(data["gate"], here.path),
        waivers=tuple(_waiver(item) for item in data.get("waivers", ())),
    )


def _waiver(data: Data) -> Waiver:
    texts = {name: data[name] for name in ("owner", "reason", "expires", "weaker", "removed")}
    return Waiver(**texts, location=_location(data))


def _claim(data: Data) -> Falsifier:
    common = {name: data[name] for name in ("id", "rule", "prediction", "if_fails", "equation", "run", "examples")}
    common |= {
        "location": _location(data),
        "test": Binding(*data["test"].split("::", 1)) if data["test"] is not None else None,
        "devices": tuple(data["devices"]),
        "kills": tuple(data["kills"]),
        "limit_s": data["limit"],
        "options": {"observed": data["id"].rpartition(".")[2]} if data["kind"] == "observed" else {},
    }
    box = data["harness"]
    if box is None:
        return Falsifier(**common)
    return Harness(**common, bounds=box["bounds"], requires=box["requires"], engine=box["engine"])


def _mutant(data: Data) -> Mutant:
    fields = data["change"]
    change: Edit | Swap
    if "function" in fields:
        change = Edit(
            function=Target.parse(fields["function"]),
            find=fields["find"],
            replace=fields["replace"],
            occurrence=fields.get("occurrence"),
        )
    else:
        change = Swap(object=Target.parse(fields["object"]), replacement=Target.parse(fields["replacement"]))
    return Mutant(id=data["id"], fault=data["fault"], seen_in=data["seen_in"], change=change, location=_location(data))


def _gate(data: Data, path: Path) -> Gate:
    required = {key: _some(data[key]) for key in ("falsifiers", "mutants", "harnesses")}
    return Gate(
        id=data["id"],
        name=data["name"],
        **required,
        devices=tuple(data["devices"]),
        fresh=frozenset(data["fresh"]),
        mutation_score=data["mutation_score"],
        equivalents=data["equivalents"],
        location=Location(path, data["line"]) if data["line"] is not None else None,
    )


def _some(ids: list[str] | None) -> frozenset[str] | None:
    return None if ids is None else frozenset(ids)


def _equations(tolerances: Sequence[Data], places: Places, here: Location) -> list[Equation]:
    """Return the equations with a set tolerance or a surviving mutant; a report holds no other equation."""
    set_tolerances = {
        tolerance["equation"]: {"tolerance": {k: v for k, v in tolerance.items() if k != "equation"}}
        for tolerance in tolerances
    }
    return [
        Equation(name=name, location=here, executable=set_tolerances.get(name, {}), texts=_texts(places.get(name, {})))
        for name in {**set_tolerances, **places}
    ]


def _texts(places: Mapping[tuple[int, int], Location]) -> dict[str, Callable[[int, int], Location]]:
    return {"expression": lambda line, column: places[line, column]} if places else {}


def _location(data: Data) -> Location:
    """Return the location of an object with path, line and column."""
    return Location(Path(data["path"]), data["line"], data["column"])


REPORT_FORMAT = "pv-report/2"
MAX_MESSAGE = 200


class _Damaged(ValueError):
    """A report file does not follow the schema, or contradicts itself; the text says where."""


def load(path: Path) -> Report:
    """Return the report in a file. Raise `UsageError` if it cannot be read, or is not a report of this version."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def parse(text: str, path: str) -> Report:
    """Return the report in the text of a file. Raise `UsageError` if it is not a report of this version."""
    try:
        return _report(_checked(path, json.loads(text)))
    except _Damaged as error:
        raise UsageError(f"{path} is damaged: {error}; write it again with --output json={path}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: not JSON ({error}); write it again with --output json={path}") from error


def _checked(path: str, content: Any) -> Data:
    """Return the content of a file if it follows the schema. Raise `UsageError` or `_Damaged`."""
    stated = content.get("format") if isinstance(content, dict) else None
    if stated != REPORT_FORMAT:
        raise UsageError(f"{path} is not a report of this version: expected format {REPORT_FORMAT!r}, found {stated!r}")
    described = schema("report")
    if not accepts(described)(content):  # jsonschema takes a hundred times as long, but says what is wrong
        problem = best_match(Draft202012Validator(described).iter_errors(content))
        raise _Damaged(f"{problem.json_path}: {problem.message}"[:MAX_MESSAGE] if problem is not None else "invalid")
    return dict(content)


def _report(data: Data) -> Report:
    contracts = tuple(_verdict(contract) for contract in data["contracts"])
    report = Report(
        contracts=contracts,
        findings=tuple(_finding(finding) for finding in data["findings"]),
        devices={name: DeviceInfo(**info) for name, info in data["devices"].items()},
        seed=data["seed"],
        seconds=data["seconds"],
        started=data["started"],
        version=data["pv"],
        python=data["python"],
        hypothesis=data["hypothesis"],
        notes=tuple(data["notes"]),
        steps=tuple(ObservedStep(**step) for step in data.get("steps", ())),
        closing=data.get("closing", ""),
        interrupted=data["interrupted"],
        unmatched=tuple(data["unmatched"]),
        shards=tuple(map(shard.parse, data.get("shards", ()))),
        missing=tuple(map(shard.parse, data.get("missing_shards", ()))),
        commit=data["commit"],
        edits=data.get("edits"),
        files=data.get("files", {}),
        project=data["project"],
    )
    # Guards against files that were edited by hand, and against rules that changed without a new version of the format.
    if report.exit_code != data["exit_code"]:
        raise _Damaged(f"its exit code is {data['exit_code']}, its contracts give {report.exit_code}")
    return report


def _verdict(data: Data) -> ContractVerdict:
    contract = _contract(data, _places(data))
    mutants, score = data["mutants"], data["mutation_score"]
    claims = {claim.id: claim for claim in contract.claims}
    unknown = next((item["falsifier"] for item in data["results"] if item["falsifier"] not in claims), None)
    if unknown is not None:
        raise _Damaged(f"contract {data['id']!r} has a result of an unknown claim {unknown!r}")
    return ContractVerdict(
        contract=contract,
        status=Status(data["status"]),
        results=tuple(_result(result, claims[result["falsifier"]]) for result in data["results"]),
        findings=tuple(_finding(finding) for finding in data["findings"]),
        killed=frozenset(mutants["killed"]),
        claimed=frozenset(mutants["claimed"]),
        untried=mutants["untried"],
        partial=data["partial"],
        score=_score(score) if score is not None else None,
        unclaimed=tuple(data["unclaimed"]),
        subject=data["subject"],
        runs=tuple(_run(run) for run in data["runs"]),
        repeat=tuple(data["repeat"]),
        absent=data["absent"],
        definitions=data.get("definitions"),
    )


def _places(data: Data) -> dict[str, dict[tuple[int, int], Location]]:
    """Return the locations of surviving equation mutants, by equation, then by line and column."""
    places: dict[str, dict[tuple[int, int], Location]] = {}
    for trial in (trial for result in data["results"] for trial in (result["trial"], *result["mutants"])):
        for mutant in ((trial or {}).get("equation_mutants") or {}).get("survivors", ()):
            if mutant["location"] is not None:
                at = _location(mutant["location"])
                places.setdefault(mutant["equation"], {})[mutant["line"], mutant["column"]] = at
    return places


def _result(data: Data, claim: Falsifier) -> Result:
    id_, device = claim.id, data["device"]
    return Result(
        falsifier=claim,
        device=data["device"],
        outcome=Outcome(data["outcome"]),
        reason=data["reason"],
        required=data["required"],
        trial=_trial(data["trial"], id_, device) if data["trial"] is not None else None,
        recorded=_recorded(data["recorded"], id_, device) if data["recorded"] is not None else None,
        mutants=tuple(
            _trial(trial, id_, device, mutant=trial["id"], reached=trial["reached"]) for trial in data["mutants"]
        ),
        unjudged=data.get("unjudged", False),
        fewer=data.get("fewer_examples", False),
    )


def _trial(data: Data, id_: str, device: str, *, mutant: str | None = None, reached: bool = False) -> Trial:
    changes = data["equation_mutants"]
    counts = {name: data[name] for name in ("detail", "valid", "invalid", "asked", "seed", "seconds", "peak_mib")}
    return Trial(
        falsifier=id_,
        device=device,
        mutant=mutant,
        mutant_reached=reached,
        **counts,
        cpu_s=data.get("cpu_seconds", 0.0),
        status=TrialStatus(data["status"]),
        output=Output(head=data["output"], size=data["output_bytes"]),
        counterexample=_counterexample(data["counterexample"]),
        current_arguments=_counterexample(data.get("under_way")),
        equation_mutants=_equation_mutants(changes) if changes is not None else None,
    )


def _counterexample(data: Data | None) -> Counterexample | None:
    if data is None:
        return None
    code = tuple(Code(**span) for span in data.get("code", ()))
    return Counterexample(**{**data, "frames": tuple(data["frames"]), "code": code})


def _equation_mutants(data: Data) -> EquationMutants:
    names = ("equation", "line", "column", "before", "after")
    survivors = (EquationMutant(**{name: survivor[name] for name in names}) for survivor in data["survivors"])
    return EquationMutants(killed=data["killed"], total=data["total"], survivors=tuple(survivors))


def _recorded(data: Data, id_: str, device: str) -> Recorded:
    return Recorded(
        falsifier=id_,
        device=device,
        status=TrialStatus(data["status"]),
        valid=data["valid"],
        detail=data["detail"],
        when=data["when"],
        hardware=DeviceInfo(name=data["hardware"], torch=data["torch"]),
        commit=data["commit"],
        changed=tuple(data["changed"]),
    )


def _score(data: Data) -> MutationScore:
    lists: dict[str, Any] = {name: tuple(data[name]) for name in ("judges", "changed")}
    counts = ("total", "judged", "killed", "by_timeout", "by_error", "no_coverage", "equivalent", "sampled")
    return MutationScore(
        **{name: data[name] for name in (*counts, "when", "commit")}, scope=tuple(data["mutation_scope"]), **lists
    )


def _run(data: Data) -> RunTrace:
    events = tuple((event["event"], event["count"]) for event in data["events"])
    losses = tuple((loss["step"], loss["loss"]) for loss in data["losses"])
    return RunTrace(run=data["run"], device=data["device"], seconds=data["seconds"], events=events, losses=losses)


def _finding(data: Data) -> Finding:
    location = Location(Path(data["path"]), data["line"], data["column"])
    severity = Severity(data["severity"])
    return Finding(code=data["code"], severity=severity, location=location, message=data["message"], hint=data["hint"])

"""Convert reports to JSON objects and back, and refuse a file that is damaged or of another version.

cattrs writes and reads the dataclasses by the names and types of their fields. `_form` declares where the format has
other names or another form. `pv.report.json_` adds derived keys: most are only for readers, such as summaries, but
`load` needs the tolerances of equations and the locations of surviving equation mutants.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from pv.contract.check import compile_schema, schema
from pv.contract.finding import Finding, Location
from pv.contract.model import (
    Binding,
    Contract,
    Edit,
    Equation,
    Falsifier,
    Gate,
    Harness,
    Mutant,
    MutationScope,
    Name,
    Swap,
    Target,
    Waiver,
)
from pv.engines.registry import engine_of
from pv.engines.trial import Trial
from pv.errors import UsageError
from pv.results.evidence import MutationScore, Recorded, RunTrace
from pv.results.outcome import Result
from pv.results.verdict import ContractVerdict, Report, Shard, parse_shard

REPORT_FORMAT = "pv-report/2"
MAX_MESSAGE = 200
MAX_OUTPUT = 8192
"""Number of characters at the end of a trial's output that a report keeps."""

Data: TypeAlias = Mapping[str, Any]
"""A JSON object that the schema has accepted."""
Json: TypeAlias = dict[str, Any]

# Tuples and sets become lists, as `json.loads` returns them; sets are sorted, so that equal reports give equal files.
_converter = Converter(unstruct_collection_overrides={tuple: list, frozenset: sorted}, detailed_validation=False)


def to_json(item: object) -> Json:
    """Return a report, or a part of one, as a JSON object."""
    data: Json = _converter.unstructure(item)
    return data


def _form(
    cls: type,
    omitted: Iterable[str] = (),
    optional: Iterable[str] = (),
    *,
    keys: Callable[[Any], Json] = lambda _: {},
    fields: Callable[[Data], Json] = lambda _: {},
    **renamed: str,
) -> None:
    """Define how a dataclass is written and read.

    Args:
        cls: The dataclass.
        omitted: Fields that are not written under their name.
        optional: Fields that are not written if they have their default.
        keys: Returns further keys for an object.
        fields: Takes the JSON object; returns the values of the fields that are not stored under their own key.
        renamed: The keys of fields that have another name in the format.
    """
    named: Any = {name: override(rename=key) for name, key in renamed.items()}
    left_out: Any = {name: override(omit=True) for name in omitted}
    left_out |= {name: override(rename=renamed.get(name), omit_if_default=True) for name in optional}
    write: Callable[[object], Json] = make_dict_unstructure_fn(cls, _converter, **{**named, **left_out})
    read: Callable[[Data, type], object] = make_dict_structure_fn(cls, _converter, **named)
    _converter.register_unstructure_hook(cls, lambda item: write(item) | keys(item))
    _converter.register_structure_hook(cls, lambda data, _: read({**data, **fields(data)}, cls))


def _place(item: Finding | Falsifier | Mutant | Waiver) -> Json:
    """Return the keys of the object's location, to be merged into the keys of the object."""
    return to_json(item.location)


def _claim_keys(claim: Falsifier) -> Json:
    return {"kind": engine_of(claim).name, "harness": harness_options(claim), **_place(claim)}


def harness_options(claim: Falsifier) -> Json | None:
    """Return the bounds, condition, engine and limit of a harness as a JSON object; None for another claim."""
    if not isinstance(claim, Harness):
        return None
    bounds = dict(claim.bounds)
    return {"bounds": bounds, "requires": claim.requires, "engine": claim.engine, "limit": claim.limit_s}


def _claim_fields(data: Data) -> Json:
    options = {"observed": data["id"].rpartition(".")[2]} if data["kind"] == "observed" else {}
    return {**(data["harness"] or {}), "location": data, "options": options}


def _run_keys(run: RunTrace) -> Json:
    events = [{"event": event, "count": number} for event, number in run.events]
    return {"events": events, "losses": [{"step": step, "loss": loss} for step, loss in run.losses]}


def _run_fields(data: Data) -> Json:
    events = [(event["event"], event["count"]) for event in data["events"]]
    return {"events": events, "losses": [(loss["step"], loss["loss"]) for loss in data["losses"]]}


def _result_keys(result: Result) -> Json:
    claim = result.falsifier
    mutants = [{"id": trial.mutant, "reached": trial.mutant_reached, **to_json(trial)} for trial in result.mutants]
    texts = {"rule": claim.rule, "prediction": claim.prediction, "if_fails": claim.if_fails}
    options, line = harness_options(claim), claim.location.line
    return {"falsifier": claim.id, **texts, "harness": options, "line": line, "mutants": mutants}


def _result_fields(data: Data) -> Json:
    """Return the trials of a result, with the keys that the format does not repeat."""
    # Trials and records do not repeat the claim and the device of their result.
    same = {"falsifier": data["falsifier"]["id"], "device": data["device"]}
    mutants = [{**item, **same, "mutant": item["id"], "mutant_reached": item["reached"]} for item in data["mutants"]]
    # In the file `reached` says whether the mutant was reached. In the model it is the set of functions that ran, which
    # is not saved.
    return {
        "trial": data["trial"] and {**data["trial"], **same},
        "recorded": data["recorded"] and {**data["recorded"], **same},
        "mutants": [{**item, "reached": ()} for item in mutants],
    }


def _verdict_keys(verdict: ContractVerdict) -> Json:
    contract = verdict.contract
    return {
        "id": contract.id,
        "version": contract.version,
        "path": str(contract.location.path),
        "strict": contract.strict,
        "mutation_scope": list(contract.mutation_scope.names),
        "judges": list(contract.mutation_scope.judge_ids),
        "mutants": {
            "claimed": sorted(verdict.claimed_mutants),
            "killed": sorted(verdict.killed),
            "untried": verdict.untried,
        },
        "gate": to_json(contract.gate),
        "claims": [to_json(claim) for claim in contract.claims],
        "declared_mutants": [to_json(mutant) for mutant in contract.mutants],
        "waivers": [to_json(waiver) for waiver in contract.waivers],
    }


def _verdict_fields(data: Data) -> Json:
    claims = {claim["id"]: claim for claim in data["claims"]}
    unknown = next((item["falsifier"] for item in data["results"] if item["falsifier"] not in claims), None)
    if unknown is not None:
        raise _Damaged(f"contract {data['id']!r} has a result of an unknown claim {unknown!r}")
    results = [{**item, "falsifier": claims[item["falsifier"]]} for item in data["results"]]
    return {"contract": _contract(data), "results": results, **data["mutants"]}


def _contract(data: Data) -> Contract:
    """Return the parts of a contract that a saved verdict holds."""
    location = Location(Path(data["path"]))
    scope, judges = ([Name(text=text, location=location) for text in data[key]] for key in ("mutation_scope", "judges"))
    claims = [_converter.structure(claim, Harness if claim["harness"] else Falsifier) for claim in data["claims"]]
    line = data["gate"]["line"]
    place = {"path": data["path"], "line": line} if line is not None else None
    return Contract(
        id=data["id"],
        version=data["version"],
        description="",
        location=location,
        strict=data["strict"],
        equations=tuple(_equations(data, location)),
        falsifiers=tuple(claim for claim in claims if not isinstance(claim, Harness)),
        harnesses=tuple(claim for claim in claims if isinstance(claim, Harness)),
        mutants=_converter.structure(data["declared_mutants"], tuple[Mutant, ...]),
        mutation_scope=MutationScope(modules=tuple(scope), judges=tuple(judges)),
        gate=_converter.structure({**data["gate"], "location": place}, Gate),
        waivers=_converter.structure(data.get("waivers", ()), tuple[Waiver, ...]),
    )


def _equations(data: Data, location: Location) -> Iterator[Equation]:
    """Yield the equations with a set tolerance or a surviving mutant; a report holds no other equation."""
    tolerances = {item["equation"]: {k: v for k, v in item.items() if k != "equation"} for item in data["tolerances"]}
    # The locations of surviving equation mutants, by equation, then by line and column in its expression.
    places: dict[str, dict[tuple[int, int], Location]] = {}
    for result in data["results"]:
        for mutant in ((result["trial"] or {}).get("equation_mutants") or {}).get("survivors", ()):
            if mutant["location"] is not None:
                at = _converter.structure(mutant["location"], Location)
                places.setdefault(mutant["equation"], {})[mutant["line"], mutant["column"]] = at
    for name in {**tolerances, **places}:
        executable = {"tolerance": tolerances[name]} if name in tolerances else {}
        texts = {"expression": _locator(places[name])} if name in places else {}
        yield Equation(name=name, location=location, executable=executable, texts=texts)


def _locator(places: Mapping[tuple[int, int], Location]) -> Callable[[int, int], Location]:
    return lambda line, column: places[line, column]


# 1. Values. The schema has checked the numbers, which are kept as they are: cattrs would read 1 as 1.0 for a float.
for _scalar in (str, int, float, bool):
    _converter.register_structure_hook(_scalar, lambda value, _: value)
_converter.register_structure_hook(Target, lambda text, _: Target.parse(text))
_converter.register_structure_hook(Binding, lambda text, _: Binding(*text.split("::", 1)))
_converter.register_structure_hook(Shard, lambda text, _: parse_shard(text))
for _type in (Target, Binding, Shard):
    _converter.register_unstructure_hook(_type, str)

# 2. Classes: register the classes of fields first, because cattrs looks up their converters when it creates the
# converter of the enclosing class.
_form(Finding, ["location"], keys=_place, fields=lambda data: {"location": data})
_form(Waiver, ["location"], keys=_place, fields=lambda data: {"location": data})
_form(Edit, optional=["occurrence"])
_converter.register_structure_hook(
    Edit | Swap, lambda data, _: _converter.structure(data, Edit if "function" in data else Swap)
)
_form(Mutant, ["location", "killed_by"], keys=_place, fields=lambda data: {"location": data})
_OF_CLAIM = ("location", "obligation", "subject", "places", "options")
_form(Falsifier, _OF_CLAIM, keys=_claim_keys, fields=_claim_fields, limit_s="limit")
_form(Harness, [*_OF_CLAIM, "bounds", "requires", "engine"], keys=_claim_keys, fields=_claim_fields, limit_s="limit")
_form(Gate, ["location"], keys=lambda gate: {"line": gate.location and gate.location.line})
_form(
    Trial,
    [
        "falsifier",
        "device",
        "mutant",
        "mutant_reached",
        "reached",
        "files",
        "reads",
        "output",
        "independent_features",
        "stopped",
    ],
    keys=lambda trial: {"output": trial.output.text[-MAX_OUTPUT:], "output_bytes": trial.output.size},
    # Only the end of the output is saved; the `Output` that is read has this end as its `head`.
    fields=lambda data: {"output": {"head": data["output"], "size": data["output_bytes"]}},
    cpu_s="cpu_seconds",
    current_arguments="under_way",
)
_form(
    Recorded,
    ["falsifier", "device", "reached", "hardware"],
    keys=lambda record: {"hardware": record.hardware.name, "torch": record.hardware.torch},
    fields=lambda data: {"hardware": {"name": data["hardware"], "torch": data["torch"]}},
)
_form(MutationScore, keys=lambda score: {"value": score.value}, scope="mutation_scope")
_form(RunTrace, ["events", "losses"], keys=_run_keys, fields=_run_fields)
_form(Result, ["falsifier", "mutants"], keys=_result_keys, fields=_result_fields, fewer="fewer_examples")
_converter.register_structure_hook(Contract, lambda contract, _: contract)
_form(
    ContractVerdict,
    ["contract", "killed", "claimed_mutants", "untried"],
    ["definitions"],
    keys=_verdict_keys,
    fields=_verdict_fields,
    score="mutation_score",
    claimed_mutants="claimed",
    unclaimed_devices="unclaimed",
)
_form(
    Report,
    optional=["edits", "shards", "missing", "steps", "closing"],
    keys=lambda report: {"format": REPORT_FORMAT, "exit_code": report.exit_code},
    version="pv",
    missing="missing_shards",
)


class _Damaged(ValueError):
    """A report file does not follow the schema, or contradicts itself; the text has the location."""


def load(path: Path) -> Report:
    """Return the report in a file. Raise `UsageError` if it cannot be read, is damaged, or is of another version."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        message = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"cannot read {path}: {message}") from error


def parse(text: str, path: str) -> Report:
    """Return the report in the text of a file. Raise `UsageError` if it is damaged or no report of this version."""
    try:
        data = json.loads(text)
        _check(path, data)
        report = _converter.structure(data, Report)
        # Guards against files that were edited by hand, and against rules that changed without a new format.
        if report.exit_code != data["exit_code"]:
            raise _Damaged(f"its exit code is {data['exit_code']}, its contracts give {report.exit_code}")
    except _Damaged as error:
        raise UsageError(f"{path} is damaged: {error}; write it again with --output json={path}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be read as a report ({error}); write it again with --output json={path}"
        ) from error
    return report


def _check(path: str, content: object) -> None:
    """Raise `UsageError` for content of another format, and `_Damaged` if it does not follow the schema."""
    stated = content.get("format") if isinstance(content, dict) else None
    if stated != REPORT_FORMAT:
        raise UsageError(f"{path} is not a report of this version: expected format {REPORT_FORMAT!r}, found {stated!r}")
    described = schema("report")
    if not compile_schema(described)(content):
        # Only jsonschema explains the error; its import and its check take a hundred times as long as `compile_schema`.
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match

        problem = best_match(Draft202012Validator(described).iter_errors(content))
        raise _Damaged(f"{problem.json_path}: {problem.message}"[:MAX_MESSAGE] if problem is not None else "invalid")

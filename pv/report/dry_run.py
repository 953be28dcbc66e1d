"""The report of a dry run, as text or JSON."""

import json
from collections import Counter

from pv.contract.wording import count
from pv.results.dry_run import DryRun
from pv.results.saved.report import to_json

FORMAT = "pv-dry-run/1"


def text(result: DryRun) -> str:
    """Return one line per contract with its tasks by kind and its mutants, then the problems."""
    width = max(map(len, result.tasks), default=0)
    lines = [f"{id_:{width}}  {_figures(result, id_)}" for id_ in result.tasks]
    number = count(sum(map(len, result.tasks.values())), "task")
    where = " and ".join(result.devices)
    last = f"{number} for {where} in {count(len(result.tasks), 'contract')}, none was run; exit {result.exit_code}"
    return "\n".join([*lines, *result.problems, last, ""])


def _figures(result: DryRun, id_: str) -> str:
    tasks = result.tasks[id_]
    parts = []
    for device in result.devices:
        kinds = Counter(task.kind for task in tasks if task.device == device and not task.mutant)
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "nothing"
        parts.append(f"{device}: {counts}")
    declared = len({task.mutant for task in tasks if task.mutant})
    parts.append(f"{count(declared, 'declared mutant')}, {count(result.automatic[id_], 'claim')} on automatic mutants")
    return "; ".join(parts if "cpu" in result.devices else parts[:-1])


def data(result: DryRun) -> str:
    """Return the result as a JSON object, with every task."""
    contracts = [{"id": id_, "automatic": result.automatic[id_], "tasks": _tasks(result, id_)} for id_ in result.tasks]
    content = {
        "format": FORMAT,
        "exit_code": result.exit_code,
        "devices": list(result.devices),
        "contracts": contracts,
        "findings": [to_json(finding) for finding in result.findings],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _tasks(result: DryRun, id_: str) -> list[dict[str, str]]:
    names = ("device", "kind", "claim", "mutant", "problem")
    return [{name: getattr(task, name) for name in names} for task in result.tasks[id_]]

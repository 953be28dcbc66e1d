"""Runs of the command line with a wrong N, in child processes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from falsifiers.distill_smoke.cases import Place, place
from falsifiers.distill_smoke.runs import child


def refused_by_command_line(
    subject: Any, *, device: str, directory: Path, trace: Callable[[dict[str, Any]], None], values: list[str]
) -> list[dict[str, Any]]:
    """Run `distill` with each value of N as a flag, as either variable and in a file; record its imports."""
    del subject, trace
    refused = []
    with place(directory) as where:
        for number, value in enumerate(values):
            origin, flags, variables = _origins(where, value)[number % 4]
            said = child(where, *where.flags(device=device), *flags, **variables)
            refused.append({"origin": origin, "value": value, **said})
    return refused


def _origins(where: Place, value: str) -> list[tuple[str, list[str], dict[str, str]]]:
    file = where.work / "smoke.toml"
    file.write_text(f"smoke = {value}\n", encoding="utf-8")
    return [
        ("--smoke", ["--smoke", value], {}),
        ("APR_DISTILL_MAX_STEPS", [], {"APR_DISTILL_MAX_STEPS": value}),
        ("REFERENCE_TRAINER_SMOKE", [], {"REFERENCE_TRAINER_SMOKE": value}),
        (str(file), ["--config", str(file)], {}),
    ]

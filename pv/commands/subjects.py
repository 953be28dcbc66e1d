"""Resolves the subject that a request names instead of a contract's own, and checks that it is installed."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pv.contract.model import Contract
from pv.contract.names import Target, hyphen_hint
from pv.contract.wording import nearest
from pv.errors import UsageError
from pv.source import resolve
from pv.source.project import Project
from pv.source.resolve import Unbound


def target_of(text: str, hint: str = "") -> Target:
    """Return the target `module` or `module:attribute`. Raise `UsageError`, ending with `hint`, for anything else."""
    target = Target.parse(text)
    attributes = target.attribute.split(".") if target.attribute else []
    names = all(part.isidentifier() for part in (*target.module.split("."), *attributes))
    if not names or any(part.startswith("_") for part in attributes):
        raise UsageError(
            f"invalid subject {text!r}: expected module or module:attribute{hint or _after(hyphen_hint(text))}"
        )
    return target


def named(contract: Contract, text: str, project: Project) -> Target:
    """Return the subject that `text` names: one that the contract declares, by name or target, or code of the project.

    Raise `UsageError` with the declared names and the nearest one if there is none.
    """
    declared = {name: other.target for other in contract.subjects for name in (str(other.target), other.name)}
    if text in declared:
        return declared[text]
    hint = _suggestion(contract, text, list(declared))
    target = target_of(text, hint)
    try:
        resolve.target_file(project, target)
    except Unbound as problem:
        raise UsageError(f"subject {text}: {problem}{hint}") from problem
    return target


def _suggestion(contract: Contract, text: str, declared: list[str]) -> str:
    near = nearest(text, [*declared, str(contract.subject)])
    if near:
        return f"; did you mean {near!r}?"
    names = ", ".join(other.name for other in contract.subjects) or "no other subject"
    return _after(hyphen_hint(text)) + _after(f"{contract.id} declares {names}")


def _after(hint: str) -> str:
    return f"; {hint}" if hint else ""


def absent(package: str) -> str:
    """Return why code that needs a distribution cannot be tried; "" if it is installed, or none is needed."""
    try:
        if package:
            version(package)
    except PackageNotFoundError:
        return f"{package} is not installed"
    return ""


def must_be_installed(contract: Contract, target: Target, project: Project) -> None:
    """Raise `UsageError` if the contract says that `target` needs a distribution which is not installed."""
    for other in contract.subjects:
        if other.target == target and (why := absent(other.package)):
            raise UsageError(f"{why}: pip install {other.package}{_extra(project, other.package)}")


def _extra(project: Project, package: str) -> str:
    """Return the project's extra that contains a distribution, for people; "" for none."""
    holding = [extra for extra, needed in _extras(project).items() if _name(package) in map(_name, needed)]
    return f" (extra {holding[0]})" if holding else ""


def _extras(project: Project) -> dict[str, list[str]]:
    file = project.root / "pyproject.toml"
    table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    found: dict[str, list[str]] = table.get("project", {}).get("optional-dependencies", {})
    return found


def _name(requirement: str) -> str:
    """Return the normalised name of a requirement's distribution."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()

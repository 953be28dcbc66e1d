"""Writes the files of a first contract. No file that exists is changed."""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pv.commands import templates
from pv.commands.callee import Callee, read
from pv.commands.formula import formula
from pv.commands.templates import SCHEMA_FILE, Names
from pv.contract.load import load, load_as, schema, shown_path
from pv.contract.names import Target
from pv.errors import UsageError
from pv.source.project import Project, find_project

SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SOURCES = "src"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The files that were written, what the author has to do by hand, and the commands that follow."""

    files: tuple[Path, ...]
    advice: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A project and the folder of it that gets code: the first one that modules are imported from."""

    project: Project
    code: Path

    def path(self, file: Path) -> str:
        """Return a path as contracts name it."""
        return file.relative_to(self.project.root).as_posix()


def new(name: str = "", *, subject: str = "") -> Written:
    """Write a contract with a falsifier and a mutant, and what a project of contracts needs around it.

    name: the id of the contract (default: that of the function, or `example`). subject: the code under contract,
    `module:function`, `module:Class.method`, or a class with one public method; its source is read, not imported
    (default: an example is written).

    Raise UsageError for an invalid name or subject, and if a file exists already: then nothing is written.
    """
    project = _project(Path.cwd().resolve(), subject)
    found = read(project, Target.parse(subject)) if subject else None
    name = name or (re.sub("[_.]", "-", found.name).strip("-") if found else "example")
    _check_name(name, project)
    place = _Place(project=project, code=project.root if project.root in project.roots else project.roots[0])
    files = _of_subject(place, name, found) if found else _of_example(place, name)
    return _write(project, files, name, _to_fill_in(files, found) if found else ())


def _project(folder: Path, subject: str) -> Project:
    """Return the project around a folder. One that is not declared also has the modules in `src/`."""
    project = find_project(folder)
    sources = folder / SOURCES
    if project.declared or not sources.is_dir() or not subject:
        return project
    return Project(
        root=folder,
        roots=(sources, folder),
        contracts=project.contracts,
        evidence=project.evidence,
        declared=False,
    )


def _check_name(name: str, project: Project) -> None:
    if not SLUG.fullmatch(name):
        raise UsageError(f"invalid name {name!r}: expected letters, digits, '.', '_' and '-'")
    for contract in load(path for path in project.contracts if path.exists()).contracts:
        if contract.id == name:
            raise UsageError(f"duplicate contract {name!r} (first defined in {contract.location.path}); name another")


def _names(place: _Place, name: str, module: str) -> tuple[Names, Path, Path]:
    """Return the names of a contract, its file and the folder of its falsifiers."""
    word = re.sub(r"\W", "_", name)
    word = f"c_{word}" if word[0].isdigit() else word
    contract = place.project.contracts[0] / f"{name}.yaml"
    folder = place.code / "falsifiers" / word
    names = Names(
        name=name,
        module=module,
        test=place.path(folder / f"falsify_{word}.py"),
        faults=f"falsifiers.{word}.faults",
        schema=os.path.relpath(place.project.contracts[0] / SCHEMA_FILE, contract.parent),
    )
    return names, contract, folder


def _of_example(place: _Place, name: str) -> dict[Path, str]:
    module = re.sub(r"\W", "_", f"c_{name}" if name[0].isdigit() else name)
    names, contract, _ = _names(place, name, module)
    text, test = templates.example(names)
    return {place.code / f"{module}.py": templates.EXAMPLE, contract: text, place.project.root / names.test: test}


def _of_subject(place: _Place, name: str, found: Callee) -> dict[Path, str]:
    names, contract, folder = _names(place, name, found.target.module)
    if not found.all_parameters:
        raise UsageError(f"{found.target} has no parameter, so there is nothing to draw; write the falsifier by hand")
    return {
        contract: _contract(place.project, names, found),
        place.project.root / names.test: templates.attack(names, found),
        folder / "faults.py": templates.faults(names),
    }


def _contract(project: Project, names: Names, found: Callee) -> str:
    """Return the contract, with the formula of the docstring as an equation if lint accepts it for these parameters."""
    known = {each.variable for each in (*found.all_parameters, *found.optional) if each.domain}
    text = formula(found.text, known) if all(each.domain and each.known for each in found.all_parameters) else ""
    if not text or not found.steady:
        return templates.contract(names, found)
    live = templates.contract(names, found, text)
    return live if _is_sound(project, live) else templates.contract(names, found)


def _is_sound(project: Project, text: str) -> bool:
    """Return whether lint has nothing to say about the equation of a contract."""
    from pv.linting import lint

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contract.yaml"
        path.write_text(text, encoding="utf-8")
        loaded = load_as({path: path})
    found = (*loaded.findings, *lint(loaded.contracts, project=project))
    return bool(loaded.contracts) and not any(finding.code.startswith(("PV0", "PV18", "PV198")) for finding in found)


def _to_fill_in(files: Mapping[Path, str], found: Callee) -> tuple[str, ...]:
    """Return what the author has to do: the source does not tell which values are valid."""
    ((test, text),) = ((shown_path(file), text) for file, text in files.items() if file.name.startswith("falsify_"))
    if not found.steady:
        return (f"the result seems to be random: write a claim about it in {test}; until then it is undecided",)
    if "=FILL_IN" not in text:
        return (f"check that the strategies in {test} draw every valid value and no invalid one",)
    names = ", ".join(each.name_in_test for each in found.all_parameters if not each.known)
    return (f"write strategies for {names} in {test}, in place of FILL_IN; until then the claim is undecided",)


def _write(project: Project, files: Mapping[Path, str], name: str, to_do: tuple[str, ...]) -> Written:
    """Write the files, and those of the project that are missing. Raise UsageError if one of the files exists."""
    for path in files:
        if os.path.lexists(path):
            raise UsageError(
                f"{shown_path(path)} exists; nothing was written: choose another name, as in `pv new NAME`"
            )
    shared, advice = _shared(project)
    create({**shared, **files})
    return Written(
        files=tuple(shown_path(path) for path in {**shared, **files}),
        advice=(*advice, *to_do),
        commands=(f"pv validate {name}", f"pv explain {name}"),
    )


def create(files: Mapping[Path, str]) -> None:
    """Create all the files or none. Raise UsageError."""
    created: list[Path] = []
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                created.append(path)
                file.write(text)
        except OSError as error:
            for each in created:
                each.unlink(missing_ok=True)
            raise UsageError(f"cannot write {path}: {error.strerror}; nothing was written") from error


def _shared(project: Project) -> tuple[dict[Path, str], tuple[str, ...]]:
    """Return the missing files that all contracts of a project share, and what to do about those that exist."""
    files: dict[Path, str] = {}
    advice = []
    if not project.declared:
        file = project.root / "pyproject.toml"
        table = templates.project([path.relative_to(project.root).as_posix() for path in project.roots])
        if file.exists():
            advice.append(f"add these lines to {shown_path(file)}:\n{table}")
        else:
            files[file] = table
    copy = project.contracts[0] / SCHEMA_FILE
    text = json.dumps(schema("contract"), indent=2, ensure_ascii=False) + "\n"
    if not copy.exists():
        files[copy] = text
    elif copy.read_bytes() != text.encode():
        advice.append(f"{shown_path(copy)} is of another version: renew it with `pv schema > {shown_path(copy)}`")
    return files, tuple(advice)

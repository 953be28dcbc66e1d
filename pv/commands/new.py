"""Writes the files of a first contract. No file that exists is changed."""

import ast
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pv.commands import templates
from pv.commands.signature import parameters
from pv.commands.templates import SCHEMA_FILE, Names
from pv.contract.check import did_you_mean
from pv.contract.load import load, schema, shown_path
from pv.contract.names import Binding, Target, hyphen_hint
from pv.errors import UsageError
from pv.source.project import Project, find_project
from pv.source.resolve import Function, Unbound, function, module_file

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


def new(name: str = "", *, subject: str = "", folder: Path | None = None) -> Written:
    """Write a contract with a falsifier and a mutant, and what a project of contracts needs around it.

    name: the id of the contract (default: that of the function, or `example`). subject: the function under contract,
    `module:function`; its source is read, not imported (default: an example is written). folder: the working
    directory.

    Raise UsageError for an invalid name or subject, and if a file exists already: then nothing is written.
    """
    project = _project((folder or Path.cwd()).resolve(), subject)
    found = _function(project, Target.parse(subject)) if subject else None
    name = name or (subject.rpartition(":")[2].replace("_", "-").strip("-") if subject else "example")
    _check_name(name, project)
    place = _Place(project=project, code=project.root if project.root in project.roots else project.roots[0])
    files = _of_subject(place, name, Target.parse(subject), found) if found else _of_example(place, name)
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


def _function(project: Project, target: Target) -> Function:
    """Return the function of a target. Raise UsageError if there is none, or if calling it does not run it."""
    if not target.attribute or "." in target.attribute:
        raise UsageError(f"invalid subject '{target}': expected module:function{_choice(project, target)}")
    if hint := hyphen_hint(str(target)):
        raise UsageError(f"invalid subject '{target}': {hint}")
    try:
        file = module_file(project, target.module)
        found = function(project, Binding(file.relative_to(project.root).as_posix(), target.attribute))
    except Unbound as problem:
        if methods := [name for name in problem.known if name.startswith(f"{target.attribute}.")]:
            public = [name for name in methods if not name.rpartition(".")[2].startswith("_")]
            called = f"constructs it and calls {' or '.join(public)}" if public else "constructs and uses it"
            raise UsageError(f"{target} is a class: name a function that {called}") from problem
        hint = did_you_mean(_missing(problem, target), list(problem.known)) if problem.known else ""
        raise UsageError(f"{problem}; {hint}" if hint else str(problem)) from problem
    if found.is_lazy:
        raise UsageError(f"{target} is a coroutine or a generator; write a function that returns its values")
    return found


def _missing(problem: Unbound, target: Target) -> str:
    return target.attribute if problem.kind == "name" else target.module


def _choice(project: Project, target: Target) -> str:
    try:
        tree = ast.parse(module_file(project, target.module).read_bytes())
    except (Unbound, SyntaxError, ValueError):
        return ""
    public = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return f"; {target.module} defines {', '.join(public)}" if public else ""


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


def _of_subject(place: _Place, name: str, target: Target, found: Function) -> dict[Path, str]:
    names, contract, folder = _names(place, name, target.module)
    required = parameters(found)
    if not required:
        raise UsageError(f"{target} has no parameter, so there is nothing to draw; write the falsifier by hand")
    summary = (ast.get_docstring(found.node) or "").partition("\n")[0]
    return {
        contract: templates.contract(names, target.attribute, summary, required),
        place.project.root / names.test: templates.attack(names, target.attribute, required),
        folder / "faults.py": templates.faults(names),
    }


def _to_fill_in(files: Iterable[Path], found: Function) -> tuple[str, ...]:
    """Return what the author has to do: the source does not tell which values are valid."""
    names = " and ".join(each.drawn for each in parameters(found))
    (test,) = (shown_path(file) for file in files if file.name.startswith("falsify_"))
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

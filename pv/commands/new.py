"""Write the files of a new contract: contract, falsifier and faults. Existing files are not changed."""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files as resources
from pathlib import Path
from string import Template

from pv.commands.function_under_contract import FunctionUnderContract, Parameter, formula, read_function
from pv.contract.load import load, load_as, schema, shown_path
from pv.contract.model import Target
from pv.errors import UsageError
from pv.source.project import Project, find_project

SCHEMA_FILE = "pv-1.schema.json"
"""The copy of the JSON Schema beside the contracts, for editors."""
SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# Parts of the templates that not every function needs.
RETURNS_NOTHING = """\
    if result is None:
        raise SkipTest("FILL IN which arguments $function changes, and compare these: it returns nothing")
"""
FILL_IN_STRATEGY = """

def fill_in():
    raise SkipTest("FILL IN $missing in $test")


FILL_IN = st.builds(fill_in)

"""
EQUATION = """\
equations:
  $equation_name:
    domain: {$domain}
$result    expression: $expression
    implemented_by: $call$returns"""
CLAIM = """\
- id: $prefix-002
  equation: $equation_name
  rule: $function follows its definition
  prediction: Code and equation agree within rounding
  if_fails: A term, a factor or a sign is wrong"""
FILL_IN_EQUATION = """\
## To compare the code with its definition, replace FILL IN by the definition and by the valid values, and uncomment the
## lines that start with one `#` (arrays need PyTorch); docs/equations.md of pv describes the language of equations.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFiles:
    """The files that `pv new` has written, and what to do next.

    Attributes:
        files: The files that were written.
        advice: What the author must do by hand.
        commands: The next commands.
    """

    files: tuple[Path, ...]
    advice: tuple[str, ...]
    commands: tuple[str, ...]


def template(name: str) -> str:
    """Return the text of a template in `templates/`, with placeholders such as `$name`."""
    return resources("pv.commands").joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")


def new(name: str = "", *, subject: str = "") -> WrittenFiles:
    """Write a contract with a falsifier and a mutant, and the missing files of the project around it.

    Args:
        name: The id of the contract (default: the name of the function, or `example`).
        subject: The code under contract: `module:function`, `module:Class.method`, or a class with one public method.
            Its source is read, not imported. Default: a small example, whose code is also written.

    Raises:
        UsageError: The name or the subject is invalid, or a file exists; nothing is written.
    """
    folder = Path.cwd().resolve()
    project = find_project(folder)
    sources = folder / "src"
    if subject and not project.declared and sources.is_dir():  # modules in `src/` belong to the project too
        project = replace(project, root=folder, roots=(sources, folder))
    function = read_function(project, Target.parse(subject)) if subject else None
    name = name or (re.sub("[_.]", "-", function.name).strip("-") if function else "example")
    if not SLUG.fullmatch(name):
        raise UsageError(f"invalid name {name!r}: expected letters, digits, '.', '_' and '-'")
    for other in load(path for path in project.contracts if path.exists()).contracts:
        if other.id == name:
            raise UsageError(f"duplicate contract {name!r} (first defined in {other.location.path}); name another")
    identifier = re.sub(r"\W", "_", f"c_{name}" if name[0].isdigit() else name)
    # Write new code to the root of the project if modules are imported from there, else to the first root of modules.
    code = project.root if project.root in project.roots else project.roots[0]
    contract = project.contracts[0] / f"{name}.yaml"
    test = code / "falsifiers" / identifier / f"falsify_{identifier}.py"
    names = {
        "name": name,
        "module": function.target.module if function else identifier,
        "test": test.relative_to(project.root).as_posix(),
        "faults": f"falsifiers.{identifier}.faults",
        "schema": SCHEMA_FILE,
        "prefix": re.sub(r"[^A-Z0-9]+", "-", name.upper()).strip("-"),
    }
    if function is None:
        templates = {code / f"{identifier}.py": "example.py", contract: "example.yaml", test: "example_falsifier.py"}
        files = {path: Template(template(file)).substitute(names) for path, file in templates.items()}
        return _write(project, files, name)
    if not function.all_parameters:
        raise UsageError(f"{function.target} has no parameter to draw values for; write the falsifier by hand")
    files = {
        contract: _contract(project, names, function),
        test: _falsifier(names, function),
        test.with_name("faults.py"): Template(template("faults.py")).substitute(names),
    }
    return _write(project, files, name, _advice(shown_path(test), files[test], function))


def _contract(project: Project, names: Mapping[str, str], function: FunctionUnderContract) -> str:
    """Return the contract of a function.

    A formula in the docstring becomes an equation if the function is deterministic, the types of its parameters are
    known and have a domain, and lint accepts the equation.
    """
    required = function.all_parameters
    if function.is_deterministic and all(parameter.domain and parameter.type_is_known for parameter in required):
        variables = {parameter.variable for parameter in (*required, *function.optional) if parameter.domain}
        if expression := formula(function.docstring, variables):
            text = _contract_text(names, function, expression)
            # A formula can parse and yet not type-check, for example if a parameter is an array: lint decides.
            if _equation_is_valid(project, text):
                return text
    return _contract_text(names, function, "")


def _contract_text(names: Mapping[str, str], function: FunctionUnderContract, expression: str) -> str:
    """Return the contract of a function.

    Args:
        names: The values of the placeholders that all templates share.
        function: The function.
        expression: The formula in the docstring; "" to write an equation that the author must fill in.
    """
    summary = function.docstring.partition("\n")[0] or f"What {function.name} returns"
    words = {**names, "function": function.name, "equation_name": function.name.replace(".", "_")}
    used = set(re.findall(r"\w+", expression))
    used_optional = tuple(parameter for parameter in function.optional if parameter.name in used)
    variables = [*function.all_parameters, *used_optional]
    domains = {parameter.variable: parameter.domain for parameter in variables}
    if not expression:
        domains = {name: f"FILL IN, such as {domain}" if domain else "FILL IN" for name, domain in domains.items()}
    returns = f"\n    returns: {variables[0].variable}  # an argument that the function changes, read after the call"
    arrays = any("[N]" in parameter.domain for parameter in variables if parameter.variable in used)
    equation = Template(EQUATION).substitute(
        words,
        domain=", ".join(f'{name}: "{domain}"' for name, domain in domains.items()),
        expression=expression or "FILL IN",
        call=function.call(lambda parameter: parameter.argument(parameter.variable), used_optional),
        result="    result: real[N]\n" if arrays else "",
        returns=returns if function.returns_nothing else "",
    )
    claim = Template(CLAIM).substitute(words)
    if not expression:
        equation, claim = ("\n".join(f"# {line}" for line in text.splitlines()) for text in (equation, claim))
        equation = FILL_IN_EQUATION + equation
    description = json.dumps(summary, ensure_ascii=False)
    contract = Template(template("contract.yaml"))
    return contract.substitute(words, description=description, equation=equation, claim=claim)


def _equation_is_valid(project: Project, text: str) -> bool:
    """Return whether lint accepts the equation of a contract."""
    from pv.linting import lint

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contract.yaml"
        path.write_text(text, encoding="utf-8")
        loaded = load_as({path: path})
    findings = (*loaded.findings, *lint(loaded.contracts, project=project))
    return bool(loaded.contracts) and not any(finding.code.startswith(("PV0", "PV18", "PV198")) for finding in findings)


def _falsifier(names: Mapping[str, str], function: FunctionUnderContract) -> str:
    """Return the falsifier of a function."""
    drawn = function.all_parameters
    words = {**names, "function": function.name}
    # The author must write the strategies of unknown types. For a random result the author must write another claim
    # anyway, so every strategy is left to fill in.
    to_fill_in = [item.name_in_test for item in drawn if not (item.type_is_known and function.is_deterministic)]
    missing = (
        f"valid values of {', '.join(to_fill_in)}" if function.is_deterministic else "a claim about the random result"
    )
    return Template(template("falsifier.py")).substitute(
        words,
        imports="\nimport torch" if any("torch." in parameter.strategy for parameter in drawn) else "",
        skip_none=Template(RETURNS_NOTHING).substitute(words) if function.returns_nothing else "",
        fill_in=Template(FILL_IN_STRATEGY).substitute(words, missing=missing) if to_fill_in else "\n",
        strategies="\n".join(_strategy(parameter, to_fill_in) for parameter in drawn),
        names=", ".join(parameter.name_in_test for parameter in drawn),
        call=function.call(lambda parameter: parameter.argument(f"copy.deepcopy({parameter.name_in_test})")),
    )


def _strategy(parameter: Parameter, to_fill_in: list[str]) -> str:
    if parameter.name_in_test not in to_fill_in:
        return f"    {parameter.name_in_test}={parameter.strategy},"
    hint = f"such as {parameter.strategy}" if parameter.strategy else f"values of {parameter.annotation or 'any type'}"
    return f"    {parameter.name_in_test}=FILL_IN,  # {hint}"


def _advice(test: Path, text: str, function: FunctionUnderContract) -> str:
    """Return advice on what the author must fill in, since source code does not show which values are valid."""
    if not function.is_deterministic:
        return f"the result seems to be random: write a claim about it in {test}; until then the claim is undecided"
    if "=FILL_IN" not in text:
        return f"check that the strategies in {test} draw every valid value and no invalid one"
    names = ", ".join(parameter.name_in_test for parameter in function.all_parameters if not parameter.type_is_known)
    return f"write strategies for {names} in {test}, in place of FILL_IN; until then the claim is undecided"


def _write(project: Project, files: Mapping[Path, str], name: str, *advice: str) -> WrittenFiles:
    """Write the files, and also the `[tool.pv]` table and the schema if the project lacks these.

    Args:
        project: The project.
        files: The texts of the files of the contract. UsageError is raised if one of the files exists.
        name: The id of the contract.
        advice: What the author must do by hand; advice on the project is added.
    """
    for path in files:
        if os.path.lexists(path):
            raise UsageError(
                f"{shown_path(path)} exists; nothing was written: choose another name, as in `pv new NAME`"
            )
    # The files that all contracts of a project share.
    shared: dict[Path, str] = {}
    advice_on_project = []
    if not project.declared:
        file = project.root / "pyproject.toml"
        roots = [path.relative_to(project.root).as_posix() for path in project.roots]
        table = f"[tool.pv]\nroots = {json.dumps(roots)}\n"
        if file.exists():
            advice_on_project.append(f"add these lines to {shown_path(file)}:\n{table}")
        else:
            shared[file] = table
    schema_file = project.contracts[0] / SCHEMA_FILE
    text = json.dumps(schema("contract"), indent=2, ensure_ascii=False) + "\n"
    if not schema_file.exists():
        shared[schema_file] = text
    elif schema_file.read_bytes() != text.encode():
        shown = shown_path(schema_file)
        advice_on_project.append(f"{shown} is of another version: renew it with `pv schema > {shown}`")
    create({**shared, **files})
    return WrittenFiles(
        files=tuple(map(shown_path, {**shared, **files})),
        advice=(*advice_on_project, *advice),
        commands=(f"pv validate {name}", f"pv explain {name}"),
    )


def create(files: Mapping[Path, str]) -> None:
    """Create all files or none. Raise UsageError if one exists or cannot be written."""
    # Mode "x" fails if the file exists, also if another process has just created it.
    created: list[Path] = []
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                created.append(path)
                file.write(text)
        except OSError as error:
            for partial in created:
                partial.unlink(missing_ok=True)
            raise UsageError(f"cannot write {path}: {error.strerror}; nothing was written") from error

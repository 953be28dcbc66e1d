"""Write the files of a first contract: contract, falsifier and faults. No file that exists is changed."""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from pv.commands.function_under_contract import FunctionUnderContract, Parameter, formula, read_function
from pv.contract.load import load, load_as, schema, shown_path
from pv.contract.model import Target
from pv.errors import UsageError
from pv.source.project import Project, find_project

SCHEMA_FILE = "pv-1.schema.json"
"""The copy of the JSON Schema beside the contracts, for editors."""

EXAMPLE = '''\
"""The learning rate of a training run."""


def warmup(step: int, steps: int, peak: float) -> float:
    """Return the rate after `step` steps: it rises linearly to `peak` in `steps` steps, and stays there."""
    return peak * min(step / steps, 1.0)
'''

EXAMPLE_TEST = '''\
"""Attacks on `$module:warmup`."""

from hypothesis import given
from hypothesis import strategies as st


@given(steps=st.integers(1, 100), after=st.integers(0, 100), peak=st.sampled_from([0.001, 0.5, 1.0]))
def falsify_rate_stays_at_its_peak(subject, steps, after, peak):
    rate = subject.warmup(steps + after, steps, peak)
    assert rate == peak, f"{after} steps after the warm-up of {steps} steps the rate is {rate}, not {peak}"
'''

EXAMPLE_CONTRACT = """\
# yaml-language-server: $$schema=$schema
schema: pv/1
metadata:
  id: $name
  version: 0.1.0
  description: The learning rate of a training run
  references: ["Goyal et al. 2017, arXiv:1706.02677, section 2.2 (gradual warm-up)"]
subject: $module
falsifiers:
- id: $prefix-001
  rule: The rate stays at its peak after the warm-up
  prediction: After `steps` steps or more the rate is `peak`
  if_fails: The rate rises beyond its peak, or the warm-up is one step too long
  test: $test::falsify_rate_stays_at_its_peak
  kills: [$name-rises-forever]
mutants:
- id: $name-rises-forever
  fault: The rate is not limited, so it rises beyond its peak
  edit: {function: "$module:warmup", find: "min(step / steps, 1.0)", replace: "step / steps"}
"""

TEST = '''\
"""Attacks on `$module:$function`."""

import copy
import re
from unittest import SkipTest
$imports
from hypothesis import given
from hypothesis import strategies as st

$filling
def called(call):
    """Return the result of a call. A value with which the code raises may be invalid, so it leaves the claim undecided.

    Once the strategies are right, call the code itself, so that an error of it refutes the claim.
    """
    try:
        return call()
    except Exception as error:
        raise SkipTest(f"FILL IN strategies of valid values in $test: {type(error).__name__}: {error}") from error


def values(result):
    """Return a result as text, so that tensors and NaN are compared by value."""
$nothing    text = repr(result.tolist() if hasattr(result, "tolist") else result)
    if re.search(" at 0x[0-9a-f]+", text):
        raise SkipTest(f"FILL IN how to compare {type(result).__name__} in values() of $test")
    return text


# Each strategy must draw every valid value, and no invalid one. Write another claim if equal arguments may give other
# results.
@given(
$strategies
)
def falsify_equal_arguments_give_equal_results(subject, $names):
    first = called(lambda: subject.$call)
    second = called(lambda: subject.$call)
    assert values(first) == values(second), f"{first}, then {second}"
'''

NOTHING = """\
    if result is None:
        raise SkipTest("FILL IN which arguments $function changes, and compare these: it returns nothing")
"""

FILLING = """

def fill_in():
    raise SkipTest("FILL IN $why in $test")


FILL_IN = st.builds(fill_in)

"""

FAULTS = '''\
"""Wrong versions of `$module`, which its contract declares as mutants."""

calls = []


def depends_on_earlier_calls(original, *arguments, **keywords):
    """Return the result with the number of calls so far."""
    calls.append(arguments)
    return original(*arguments, **keywords), len(calls)
'''

CONTRACT = """\
# yaml-language-server: $$schema=$schema
schema: pv/1
metadata:
  id: $name
  version: 0.1.0
  description: $description
  references: ["FILL IN: the paper, specification or issue that says what is right"]
subject: $module
$equation
falsifiers:
- id: $prefix-001
  rule: Equal arguments give equal results
  prediction: Two calls with equal arguments return equal values
  if_fails: The result depends on earlier calls, on random numbers or on the time
  test: $test::falsify_equal_arguments_give_equal_results
  kills: [$name-depends-on-earlier-calls]
$claim
mutants:
- id: $name-depends-on-earlier-calls
  fault: The result depends on the number of earlier calls
  swap: {object: "$module:$function", with: "$faults:depends_on_earlier_calls"}
"""


EQUATION = """\
equations:
  $word:
    domain: {$domain}
$result    expression: $expression
    implemented_by: $call$returns"""

CLAIM = """\
- id: $prefix-002
  equation: $word
  rule: $function follows its definition
  prediction: Code and equation agree within rounding
  if_fails: A term, a factor or a sign is wrong"""

TO_FILL_IN = """\
## To compare the code with its definition, write that and the valid values in place of FILL IN, and uncomment the lines
## that start with one `#` (arrays need PyTorch); docs/equations.md of pv describes the language.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names that the files of one contract share.

    Attributes:
        name: The id of the contract.
        module: The module under contract.
        test: The file of the falsifier.
        faults: The module of the faults.
        schema: The path of the JSON Schema, relative to the contract.
    """

    name: str
    module: str
    test: str
    faults: str
    schema: str

    @property
    def prefix(self) -> str:
        """Return the start of the ids of its claims."""
        return re.sub(r"[^A-Z0-9]+", "-", self.name.upper()).strip("-")


def project_table(roots: Sequence[str]) -> str:
    """Return the table of a project."""
    return f"[tool.pv]\nroots = {json.dumps(list(roots))}\n"


def example_texts(names: Names) -> tuple[str, str]:
    """Return the contract of the example and its attack."""
    return _fill(EXAMPLE_CONTRACT, names), _fill(EXAMPLE_TEST, names)


def contract_text(names: Names, callee: FunctionUnderContract, expression: str = "") -> str:
    """Return the contract of a function.

    Args:
        names: The names of its files.
        callee: The function.
        expression: The formula in the docstring; "" to leave the equation to fill in.
    """
    summary = callee.text.partition("\n")[0] or f"What {callee.name} returns"
    words = {"function": callee.name, "word": callee.name.replace(".", "_")}
    equation = _fill(EQUATION, names, **words, **_equation_parts(callee, expression))
    claim = _fill(CLAIM, names, **words)
    if not expression:
        equation, claim = TO_FILL_IN + _comment_out(equation), _comment_out(claim)
    description = json.dumps(summary, ensure_ascii=False)
    return _fill(CONTRACT, names, **words, description=description, equation=equation, claim=claim)


def _equation_parts(callee: FunctionUnderContract, expression: str) -> dict[str, str]:
    """Return the substitutions of `EQUATION`, for a formula or for an equation to fill in."""
    used = set(re.findall(r"\w+", expression))
    also = tuple(parameter for parameter in callee.optional if parameter.name in used)
    shown = [*callee.all_parameters, *also]
    domain = ", ".join(
        f'{parameter.variable}: "{parameter.domain if expression else _domain_to_fill_in(parameter.domain)}"'
        for parameter in shown
    )
    changed = shown[0].variable if shown else "FILL IN"
    returns = f"\n    returns: {changed}  # an argument that it changes, as it is after the call"
    arrays = any("[N]" in parameter.domain for parameter in shown if parameter.variable in used)
    return {
        "domain": domain,
        "expression": expression or "FILL IN",
        "call": callee.call(lambda parameter: parameter.argument(parameter.variable), also),
        "result": "    result: real[N]\n" if arrays else "",
        "returns": returns if callee.silent else "",
    }


def _comment_out(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())


def _domain_to_fill_in(proposal: str) -> str:
    return f"FILL IN, such as {proposal}" if proposal else "FILL IN"


def falsifier_text(names: Names, callee: FunctionUnderContract) -> str:
    """Return the falsifier of a function."""
    drawn = callee.all_parameters
    unknown = [parameter.name_in_test for parameter in drawn if not _uses_strategy(parameter, callee)]
    why = f"valid values of {', '.join(unknown)}" if callee.steady else "a claim about the random result"
    return _fill(
        TEST,
        names,
        function=callee.name,
        imports="\nimport torch" if any("torch." in parameter.strategy for parameter in drawn) else "",
        nothing=_fill(NOTHING, names, function=callee.name) if callee.silent else "",
        filling=_fill(FILLING, names, why=why) if unknown else "\n",
        strategies="\n".join(_strategy(parameter, callee) for parameter in drawn),
        names=", ".join(parameter.name_in_test for parameter in drawn),
        call=callee.call(lambda parameter: parameter.argument(f"copy.deepcopy({parameter.name_in_test})")),
    )


def _uses_strategy(parameter: Parameter, callee: FunctionUnderContract) -> bool:
    """Return whether the test uses the proposed strategy, and not `FILL_IN`."""
    return parameter.type_is_known and callee.steady


def _strategy(parameter: Parameter, callee: FunctionUnderContract) -> str:
    if _uses_strategy(parameter, callee):
        return f"    {parameter.name_in_test}={parameter.strategy},"
    such = f"such as {parameter.strategy}" if parameter.strategy else f"values of {parameter.annotation or 'any type'}"
    return f"    {parameter.name_in_test}=FILL_IN,  # {such}"


def faults_text(names: Names) -> str:
    """Return the wrong version of a function."""
    return _fill(FAULTS, names)


def _fill(text: str, shared: Names, **words: str) -> str:
    common = {key: getattr(shared, key) for key in ("name", "module", "test", "faults", "schema", "prefix")}
    return Template(text).substitute({**common, **words})


SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
SOURCES = "src"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of `pv new`.

    Attributes:
        files: The files that were written.
        advice: What the author must do by hand.
        commands: The next commands.
    """

    files: tuple[Path, ...]
    advice: tuple[str, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A project, and the folder for new code: the first folder that modules are imported from."""

    project: Project
    code: Path

    def path(self, file: Path) -> str:
        """Return a path as contracts name it."""
        return file.relative_to(self.project.root).as_posix()


def new(name: str = "", *, subject: str = "") -> Written:
    """Write a contract with a falsifier and a mutant, and the missing files of the project around it.

    Args:
        name: The id of the contract (default: the name of the function, or `example`).
        subject: The code under contract: `module:function`, `module:Class.method`, or a class with one public method.
            Its source is read, not imported. Default: code of a small example is written too.

    Raises:
        UsageError: The name or the subject is invalid, or a file exists; nothing is written.
    """
    project = _project(Path.cwd().resolve(), subject)
    function = read_function(project, Target.parse(subject)) if subject else None
    name = name or (re.sub("[_.]", "-", function.name).strip("-") if function else "example")
    _check_name(name, project)
    place = _Place(project=project, code=project.root if project.root in project.roots else project.roots[0])
    files = _of_subject(place, name, function) if function else _of_example(place, name)
    return _write(project, files, name, _to_fill_in(files, function) if function else ())


def _project(folder: Path, subject: str) -> Project:
    """Return the project around a folder. If no table [tool.pv] declares it, modules in `src/` belong to it too."""
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
    text, test = example_texts(names)
    return {place.code / f"{module}.py": EXAMPLE, contract: text, place.project.root / names.test: test}


def _of_subject(place: _Place, name: str, function: FunctionUnderContract) -> dict[Path, str]:
    names, contract, folder = _names(place, name, function.target.module)
    if not function.all_parameters:
        raise UsageError(
            f"{function.target} has no parameter, so there is nothing to draw; write the falsifier by hand"
        )
    return {
        contract: _contract(place.project, names, function),
        place.project.root / names.test: falsifier_text(names, function),
        folder / "faults.py": faults_text(names),
    }


def _contract(project: Project, names: Names, function: FunctionUnderContract) -> str:
    """Return the contract of a function; a formula in its docstring becomes an equation if lint accepts it."""
    # A formula can parse and yet not type-check, for example if a parameter is an array: lint decides.
    variables = {parameter.variable for parameter in (*function.all_parameters, *function.optional) if parameter.domain}
    text = (
        formula(function.text, variables)
        if all(parameter.domain and parameter.type_is_known for parameter in function.all_parameters)
        else ""
    )
    if not text or not function.steady:
        return contract_text(names, function)
    live = contract_text(names, function, text)
    return live if _is_sound(project, live) else contract_text(names, function)


def _is_sound(project: Project, text: str) -> bool:
    """Return whether lint accepts a contract with its equation."""
    from pv.linting import lint

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "contract.yaml"
        path.write_text(text, encoding="utf-8")
        loaded = load_as({path: path})
    findings = (*loaded.findings, *lint(loaded.contracts, project=project))
    return bool(loaded.contracts) and not any(finding.code.startswith(("PV0", "PV18", "PV198")) for finding in findings)


def _to_fill_in(files: Mapping[Path, str], function: FunctionUnderContract) -> tuple[str, ...]:
    """Return advice on what the author must fill in, since source code does not tell which values are valid."""
    ((test, text),) = ((shown_path(file), text) for file, text in files.items() if file.name.startswith("falsify_"))
    if not function.steady:
        return (f"the result seems to be random: write a claim about it in {test}; until then it is undecided",)
    if "=FILL_IN" not in text:
        return (f"check that the strategies in {test} draw every valid value and no invalid one",)
    names = ", ".join(parameter.name_in_test for parameter in function.all_parameters if not parameter.type_is_known)
    return (f"write strategies for {names} in {test}, in place of FILL_IN; until then the claim is undecided",)


def _write(project: Project, files: Mapping[Path, str], name: str, to_do: tuple[str, ...]) -> Written:
    """Write the files and the missing files of the project. Raise UsageError if one of the files exists."""
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


def _shared(project: Project) -> tuple[dict[Path, str], tuple[str, ...]]:
    """Return the missing files that all contracts of a project share, and advice about existing ones."""
    files: dict[Path, str] = {}
    advice = []
    if not project.declared:
        file = project.root / "pyproject.toml"
        table = project_table([path.relative_to(project.root).as_posix() for path in project.roots])
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

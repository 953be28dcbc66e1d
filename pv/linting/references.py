"""Lint rules about the names in a contract and the functions of its falsifiers.

1. Names inside contracts: ids are unique, references are declared, and declarations are used.
2. Names of code: every test, run and subject exists and can be called.
3. The function of a falsifier: every parameter is supplied, and its claim is asserted.
"""

import ast
import contextlib
from collections.abc import Iterable, Iterator, Sequence

from pv.contract import sharing
from pv.contract.codes import Code, Stops
from pv.contract.finding import Finding, Location, error, notice
from pv.contract.model import Binding, Contract, Falsifier, OtherSubject, Run, Target, UnknownName
from pv.contract.wording import did_you_mean
from pv.engines.harness.names import Definition, Names, module_of
from pv.engines.harness.rules import reachable
from pv.engines.registry import engine_of
from pv.engines.rule import Context, rule, unbound_finding
from pv.source import resolve, syntax
from pv.source.resolve import Unbound
from pv.source.syntax import name_of

CLAUSES_WITHOUT_ID = ("subject", "qa_gate", "mutation_scope")


@rule(Code("PV101", "a duplicate id in a contract"))
def unique_ids(context: Context) -> Iterator[Finding]:
    """Check that no two claims, obligations, mutants, runs and subjects of a contract have the same id."""
    contract = context.contract
    entries = [(claim.id, claim.location) for claim in contract.claims]
    entries += [(obligation.id, obligation.location) for obligation in contract.obligations]
    entries += [(mutant.id, mutant.location) for mutant in contract.mutants]
    entries += [(run.name, run.location) for run in contract.runs]
    entries += [(subject.name, subject.location) for subject in contract.subjects]
    for location, message in _duplicates("id", entries):
        yield error("PV101", location, message, "rename one")


def _duplicates(noun: str, entries: Iterable[tuple[str, Location]]) -> Iterator[tuple[Location, str]]:
    """Yield the location and a message for every entry whose name an earlier entry has."""
    first: dict[str, Location] = {}
    for name, location in entries:
        if name in first:
            yield location, f"duplicate {noun} {name!r} (first defined at line {first[name].line})"
        first.setdefault(name, location)


@rule(Code("PV102", "an id of a contract, claim or mutant that another contract uses"))
def unique_across(context: Context) -> Iterator[Finding]:
    """Check that ids of contracts, claims and mutants are unique: they name evidence files and command arguments."""
    contract = context.contract
    entries = [("contract", contract.id, contract.location)]
    entries += [("claim", claim.id, claim.location) for claim in contract.claims]
    entries += [("mutant", mutant.id, mutant.location) for mutant in contract.mutants]
    for earlier in context.contracts:
        if earlier is contract:
            return  # only earlier contracts are compared: a duplicate is reported once, at the later of the two
        if not earlier.strict:
            continue
        # A contract may have the id of a claim, but a claim may not have the id of a mutant.
        clauses = {claim.id: claim.location for claim in earlier.claims}
        clauses |= {mutant.id: mutant.location for mutant in earlier.mutants}
        for noun, id_, location in entries:
            defined = {earlier.id: earlier.location} if noun == "contract" else clauses
            if id_ in defined:
                message = f"duplicate {noun} id {id_!r} (first defined at {defined[id_]})"
                yield error("PV102", location, message, "ids are unique across all contracts: rename one")


@rule(
    Code("PV130", "a falsifier claims to kill a mutant that is not declared"),
    Code("PV132", "a mutant names a claim that the contract's suite does not have"),
    Code("PV140", "a falsifier names an obligation that is not declared"),
    Code("PV142", "a falsifier names an equation that is not declared"),
    Code("PV143", "a falsifier names a run that is not declared"),
)
def references(context: Context) -> Iterator[Finding]:
    """Check that the obligation, equation, run and mutants of every claim, and the claims in `killed_by`, exist."""
    contract = context.contract
    declared = {
        "obligation": ("PV140", [obligation.id for obligation in contract.obligations]),
        "equation": ("PV142", [equation.name for equation in contract.equations]),
        "run": ("PV143", [run.name for run in contract.runs]),
    }
    mutants = [mutant.id for mutant in contract.mutants]
    for claim in contract.claims:
        for key, (code, names) in declared.items():
            name = getattr(claim, key)  # the attribute of a claim has the name of its key
            if name is not None and name not in names:
                yield error(code, claim.at(key), f"{claim.id}: unknown {key} {name!r}", did_you_mean(name, names))
        for index, mutant in enumerate(claim.kills):
            if mutant not in mutants:
                message = f"{claim.id}: unknown mutant {mutant!r}"
                yield error("PV130", claim.at(f"kills/{index}"), message, did_you_mean(mutant, mutants))
    yield from _unknown_killers(contract)


def _unknown_killers(contract: Contract) -> Iterator[Finding]:
    """Yield a finding for every id in a `killed_by` that no claim of the contract's suite or observed runs has."""
    # `pv.contract.suites.join_suite` puts the id of the contract before the ids of a suite's claims.
    prefix = f"{contract.id}."
    ids = [claim.id.removeprefix(prefix) for claim in contract.falsifiers if claim.id.startswith(prefix)]
    for mutant in contract.mutants:
        for name in mutant.killed_by:
            if name not in ids:
                hint = did_you_mean(name, ids) if ids else "the contract names no suite, and no `claims` of a run"
                yield error("PV132", mutant.location, f"{mutant.id}: unknown claim {name!r} of a suite", hint)


@rule(
    Code("PV131", "a mutant that no falsifier claims to kill", Stops.NOTHING),
    Code("PV141", "an obligation that no falsifier checks", Stops.NOTHING),
    Code("PV144", "a run that no falsifier reads", Stops.NOTHING),
    Code("PV145", "a run without `small` arguments, which mutants need", Stops.NOTHING),
    Code("PV160", "a contract without falsifiers and harnesses: nothing could be measured"),
)
def unused(context: Context) -> Iterator[Finding]:
    """Check that every obligation is checked, every run is read and every mutant is claimed.

    Check too that the contract has claims, and that every run that is read has `small` arguments.
    """
    contract = context.contract
    # Without claims everything is unused: report only that the contract has no claims.
    if not contract.claims:
        yield error("PV160", contract.location, "the contract has no falsifiers and no harnesses", "write a falsifier")
        return
    checked = {claim.obligation for claim in contract.claims}
    claimed = {mutant for claim in contract.claims for mutant in claim.kills}
    read = {claim.run for claim in contract.claims}
    for obligation in contract.obligations:
        if obligation.id not in checked:
            hint = f"give a falsifier `obligation: {obligation.id}`"
            yield error("PV141", obligation.location, f"no falsifier checks the obligation {obligation.id!r}", hint)
    for run in contract.runs:
        if run.name not in read:
            hint = f"give a falsifier `run: {run.name}`"
            yield error("PV144", run.location, f"no falsifier reads the run {run.name!r}", hint)
        elif run.small is None:
            hint = "mutants are run with `small` arguments"
            yield error("PV145", run.location, f"the run {run.name!r} has no `small` arguments", hint)
    for mutant in contract.mutants:
        if mutant.id not in claimed:
            message = f"no falsifier claims to kill {mutant.id!r}"
            yield error("PV131", mutant.location, message, "list the mutant in the `kills` of a falsifier")


@rule(
    Code("PV150", "the gate requires a falsifier, harness or mutant that is not declared", Stops.NOTHING),
    Code("PV151", "the gate requires fresh CUDA evidence, and no falsifier runs on CUDA", Stops.NOTHING),
)
def gate(context: Context) -> Iterator[Finding]:
    """Check that the gate requires declared ids, and recorded results of devices that falsifiers run on."""
    gate = context.contract.gate
    location = gate.location or context.contract.location
    declared = {
        "falsifier": (gate.falsifiers, [falsifier.id for falsifier in context.contract.falsifiers]),
        "harness": (gate.harnesses, [harness.id for harness in context.contract.harnesses]),
        "mutant": (gate.mutants, [mutant.id for mutant in context.contract.mutants]),
    }
    for kind, (required, names) in declared.items():
        for name in sorted((required or frozenset()) - set(names)):
            yield error("PV150", location, f"unknown {kind} {name!r} in the gate", did_you_mean(name, names))
    if "cuda" in gate.fresh and not any("cuda" in f.devices for f in context.contract.falsifiers):
        message = "the gate requires fresh CUDA evidence, and no falsifier has `cuda` in `devices`"
        yield error("PV151", location, message, "give a falsifier `devices: [cpu, cuda]`, or remove `cuda: fresh`")


@rule(
    Code("PV152", "a waiver of a clause that does not exist, or of a removed one that exists", Stops.NOTHING),
    Code("PV153", "a waiver whose date of expiry does not exist", Stops.NOTHING),
)
def waivers(context: Context) -> Iterator[Finding]:
    """Check the clauses and dates of waivers."""
    contract = context.contract
    names = [claim.id for claim in contract.claims] + [mutant.id for mutant in contract.mutants]
    names += [run.name for run in contract.runs] + [subject.name for subject in contract.subjects]
    names += [*sharing.executable_equations(contract), *CLAUSES_WITHOUT_ID]
    # Lint does not report an expired waiver, since findings must not depend on the date. The comparison with a base
    # does.
    for waiver in context.contract.waivers:
        if waiver.weaker and waiver.weaker not in names:
            hint = f"use `removed` for a clause that is gone; {did_you_mean(waiver.weaker, names)}"
            yield error("PV152", waiver.location, f"unknown clause {waiver.weaker!r} in a waiver", hint)
        if waiver.removed and waiver.removed in names:
            message = f"clause {waiver.removed!r} of a waiver is not removed: the contract still has it"
            yield error("PV152", waiver.location, message, "use `weaker` for a clause that asks for less")
        if waiver.last_day is None:
            message = f"invalid date {waiver.expires!r} for 'expires'"
            yield error("PV153", waiver.location, message, "write a day of the calendar as YYYY-MM-DD")


@rule(Code("PV202", "provable-contracts format: a falsifier in prose, which cannot run", Stops.NOTHING), existing=True)
def unbound_falsifiers(context: Context) -> Iterator[Finding]:
    """Yield a notice for every claim of the provable-contracts format, whose test is prose.

    Rules about this format yield only notices, since the authors of such a file did not choose these rules.
    """
    for falsifier in context.contract.claims:
        message = f"{falsifier.id!r} is unbound: its test is prose, so it cannot be run"
        yield notice("PV202", falsifier.location, message, "a `schema: pv/1` contract can bind it to code")


@rule(Code("PV203", "provable-contracts format: a duplicate id", Stops.NOTHING), existing=True)
def repeated_ids(context: Context) -> Iterator[Finding]:
    """Yield a notice for every duplicate id in a contract of the provable-contracts format."""
    contract = context.contract
    for noun, entries in (("claim id", contract.claims), ("obligation id", contract.obligations)):
        for location, message in _duplicates(noun, ((entry.id, entry.location) for entry in entries)):
            yield notice("PV203", location, message, "rename one")


ALLOWED_SETTINGS = {"max_examples", "suppress_health_check"}
# The code of a finding by `Unbound.kind`.
TEST_CODES = {"file": "PV110", "name": "PV111", "source": "PV110"}
SUBJECT_CODES = {"file": "PV120", "name": "PV121", "source": "PV120"}


@rule(
    Code("PV110", "the file of a test or callable is missing, or is (or imports) a file that is not valid Python"),
    Code("PV111", "the function of a test, or of a run's callable, does not exist"),
    Code("PV112", "a function or command lacks an argument, such as `subject`, or a function is async or a generator"),
    Code("PV113", "a falsifier changes a Hypothesis setting other than max_examples and suppress_health_check"),
)
def tests(context: Context) -> Iterator[Finding]:
    """Check the functions of claims and runs, and the placeholders of commands."""
    for falsifier in context.contract.claims:
        if falsifier.test is not None:
            needed = engine_of(falsifier).parameters(falsifier)
            yield from _check_function(context, falsifier.test, falsifier.at("test"), falsifier.id, needed)
    for run in context.contract.runs:
        if run.callable is not None:
            # A worker calls the function with these arguments, see `pv.engines.run`.
            needed = ("subject", "device", "directory", "trace", *run.arguments)
            yield from _check_function(context, run.callable, run.location, run.name, needed)
            continue
        for name in run.small or {}:
            placeholder = f"{{{name}}}"
            if not any(placeholder in word for word in run.command):
                message = f"{run.name}: no word of the command has the argument {name!r}"
                yield error("PV112", run.location, message, f"write {placeholder} in one of its words")


def _check_function(
    context: Context, bound: Binding, location: Location, owner: str, needed: Sequence[str]
) -> Iterator[Finding]:
    """Check that a function exists, accepts the arguments `needed`, and is neither async nor a generator.

    Check too that the function sets no setting of Hypothesis except `ALLOWED_SETTINGS`.
    """
    try:
        function = resolve.function(context.project, bound)
        resolve.module_name(context.project, function.path)
        context.imports.closure([function.path])  # raises Unbound for an imported file that is not Python
    except Unbound as problem:
        unresolved = bound.file if problem.kind == "file" else bound.name
        yield unbound_finding(TEST_CODES, location, problem, unresolved)
        return
    missing = [name for name in needed if name not in function.parameters]
    if missing and not function.takes_any:
        takes = ", ".join(function.parameters) or "nothing"
        names = ", ".join(f"`{name}`" for name in missing)
        hint = f"add the parameter{'s' if len(missing) > 1 else ''} {names}"
        yield error("PV112", location, f"{owner}: {bound} accepts {takes}", hint)
    if function.is_lazy:
        yield error("PV112", location, f"{owner}: {bound} is async or a generator", "its body would never run")
    for name in _hypothesis_settings(function.node):
        if name not in ALLOWED_SETTINGS:
            hint = "a falsifier sets only max_examples and suppress_health_check"
            yield error("PV113", location, f"{owner}: {bound} sets Hypothesis's {name!r}", hint)


def _hypothesis_settings(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "settings":
            yield from (keyword.arg for keyword in decorator.keywords if keyword.arg is not None)


@rule(
    Code("PV120", "the module of a subject is missing, or is (or imports) a file that is not valid Python"),
    Code("PV121", "the attribute of a subject does not exist"),
    Code("PV122", "a falsifier or run without a subject"),
)
def subjects(context: Context) -> Iterator[Finding]:
    """Check that every claim and run has a subject, and that the subject exists."""
    if context.subject is not None:
        yield from _check_subject(context, context.contract.location, str(context.subject))
        return
    claims: list[tuple[str, Falsifier | Run]] = [(claim.id, claim) for claim in context.contract.claims]
    claims += [(run.name, run) for run in context.contract.runs]
    seen: set[str] = set()
    for name, claim in claims:
        try:
            subject = str(context.contract.subject_of(claim))
        except UnknownName:
            continue  # an unknown run: PV143 reports it
        except LookupError:
            yield error("PV122", claim.location, f"{name} has no subject", "give it or the contract a `subject`")
            continue
        if subject not in seen:  # report a subject once, even if several claims have it
            seen.add(subject)
            location = claim.at("subject") if isinstance(claim, Falsifier) else claim.location
            yield from _check_subject(context, location, subject)


def _check_subject(context: Context, location: Location, text: str) -> Iterator[Finding]:
    """Check that a subject exists, and that all code that it imports from the project can be parsed."""
    target = Target.parse(text)
    try:
        context.imports.closure([resolve.target_file(context.project, target)])
    except Unbound as problem:
        unresolved = target.module if problem.kind == "file" else target.attribute
        hint = did_you_mean(unresolved, problem.known) if problem.known else ""
        yield error(SUBJECT_CODES[problem.kind], location, f"subject {text}: {problem}", hint)


@rule(
    Code("PV195", "`not_claimed` of another subject names a falsifier that is not declared", Stops.NOTHING),
    Code("PV196", "`claims_as` of another subject names a subject that is not declared before it", Stops.NOTHING),
    Code("PV197", "two other subjects with the same target", Stops.NOTHING),
)
def other_subjects(context: Context) -> Iterator[Finding]:
    """Check that other subjects exist, differ, and refer only to existing falsifiers and to earlier subjects."""
    earlier: dict[str, OtherSubject] = {}
    for subject in context.contract.subjects:
        yield from _check_subject(context, subject.location, str(subject.target))
        yield from _unknown_references(context, subject, list(earlier))
        first = next((other for other in earlier.values() if other.target == subject.target), None)
        if first is not None:
            message = f"{subject.name}: duplicate target {subject.target} (first used by {first.name})"
            yield error("PV197", subject.location, message, "remove one of them, or give it a function of its own")
        earlier[subject.name] = subject


def _unknown_references(context: Context, subject: OtherSubject, earlier: list[str]) -> Iterator[Finding]:
    if subject.claims_as and subject.claims_as not in earlier:
        message = f"{subject.name}: unknown subject {subject.claims_as!r} in `claims_as`; it must be declared before"
        yield error("PV196", subject.location, message, did_you_mean(subject.claims_as, earlier))
    ids = [falsifier.id for falsifier in context.contract.falsifiers]
    for entry in subject.not_claimed:
        for id_, location in zip(entry.falsifiers, entry.places, strict=True):
            if id_ not in ids:
                yield error("PV195", location, f"{subject.name}: unknown falsifier {id_!r}", did_you_mean(id_, ids))


HYPOTHESIS_DECORATORS = {"given", "settings", "example", "seed", "reproduce_failure"}
FOLDER_FIXTURES = {"tmp_path", "tmpdir", "tmp_path_factory"}
ASSERTING_WORDS = ("assert", "raises", "warns", "fail", "check", "expect")
"""Words in the names of functions that may assert."""
DRAW_HINT = "draw it, such as `@given({0}=st.sampled_from([...]))`"
FIXTURE_HINT = "falsifiers get no fixtures: draw it with `@given({0}=...)`, or make it in the body or in a helper"
FOLDER_HINT = "falsifiers get no fixtures: use `with tempfile.TemporaryDirectory() as {0}:`"
Node = ast.FunctionDef | ast.AsyncFunctionDef


@rule(
    Code("PV114", "a falsifier has a parameter that nothing supplies, or is parametrized by pytest"),
    Code("PV115", "a falsifier returns a value, which is ignored"),
    Code("PV204", "a falsifier without an assert, which only an exception can refute", Stops.NOTHING),
)
def attacks(context: Context) -> Iterator[Finding]:
    """Check that every parameter of a falsifier is supplied, and that its function asserts and returns nothing."""
    for falsifier in context.contract.falsifiers:
        if falsifier.test is None or not engine_of(falsifier).asserts:
            continue
        with contextlib.suppress(Unbound):  # `tests` reports a function that does not exist
            function = resolve.function(context.project, falsifier.test)
            yield from _check_not_parametrized(falsifier, function.node)
            yield from _check_parameters(falsifier, function.node)
            # The hint for a returned value is to assert it, so the missing assert is not reported as well.
            findings = list(_check_returns_nothing(falsifier, function.node))
            yield from findings or _check_asserts(context, falsifier, function)


def _check_not_parametrized(falsifier: Falsifier, node: Node) -> Iterator[Finding]:
    """Yield a finding for every `pytest.mark.parametrize`: workers call the function without pytest."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and name_of(decorator) == "parametrize":
            first = decorator.args[0] if decorator.args else None
            names = str(first.value) if isinstance(first, ast.Constant) else "x"
            message = f"{falsifier.id}: {falsifier.test} is parametrized by pytest, which `pv validate` does not do"
            hint = DRAW_HINT.format(names.partition(",")[0].strip())
            yield error("PV114", falsifier.at("test"), message, hint)


def _check_parameters(falsifier: Falsifier, node: Node) -> Iterator[Finding]:
    """Yield a finding for every required parameter that neither `pv` nor `@given` supplies."""
    drawn = _drawn_parameters(node)
    if drawn is None or any(name_of(decorator) == "parametrize" for decorator in node.decorator_list):
        return
    supplied = {*engine_of(falsifier).parameters(falsifier), "subject", "device", *drawn}
    for name in syntax.required_parameters(node):
        if name not in supplied:
            message = f"{falsifier.id}: {falsifier.test} has the parameter `{name}`, which nothing supplies"
            hint = FOLDER_HINT if name in FOLDER_FIXTURES else FIXTURE_HINT
            yield error("PV114", falsifier.at("test"), message, hint.format(name))


def _drawn_parameters(node: Node) -> set[str] | None:
    """Return the parameters that `@given` draws; None if the decorators do not show which ones are supplied."""
    names: set[str] = set()
    positional = [parameter.arg for parameter in node.args.args]
    for decorator in node.decorator_list:
        if not isinstance(decorator, ast.Call) or name_of(decorator) not in HYPOTHESIS_DECORATORS:
            return None
        if name_of(decorator) != "given":
            continue
        # For `*x` and `**x` the source does not show the names; for `...` Hypothesis infers them from annotations.
        if any(isinstance(value, ast.Starred) or ast.unparse(value) == "..." for value in decorator.args):
            return None
        if any(keyword.arg is None for keyword in decorator.keywords):
            return None
        names |= {str(keyword.arg) for keyword in decorator.keywords}
        # Hypothesis assigns positional strategies to the last parameters.
        names |= set(positional[len(positional) - len(decorator.args) :])
    return names


def _check_returns_nothing(falsifier: Falsifier, node: Node) -> Iterator[Finding]:
    """Yield a finding for the first `return` with a value, outside of nested functions."""
    for child in syntax.nodes_inside(node.body):
        if isinstance(child, ast.Return) and child.value is not None and ast.unparse(child.value) != "None":
            message = f"{falsifier.id}: {falsifier.test} returns a value, which is ignored"
            yield error("PV115", falsifier.at("test"), message, f"write `assert {ast.unparse(child.value)[:60]}`")
            return


def _check_asserts(context: Context, falsifier: Falsifier, function: resolve.Function) -> Iterator[Finding]:
    """Yield a notice if neither the function nor the functions of its file that it may call can assert anything."""
    assert falsifier.test is not None
    # Look at the function itself first: nearly all functions assert, and the search for called functions takes most of
    # the time of lint.
    if any(isinstance(node, ast.Assert | ast.Raise) for node in ast.walk(function.node)):
        return
    path = function.path
    module = module_of(resolve.module_name(context.project, path), path, resolve.parse(path))
    definitions = reachable(Names([module]), path, falsifier.test.name)
    if not any(_may_assert(definition, node) for definition in definitions for node in ast.walk(definition.node)):
        message = f"{falsifier.id}: {falsifier.test} has no assert, so only an exception can refute it"
        yield notice("PV204", falsifier.at("test"), message, "assert the prediction")


def _may_assert(definition: Definition, node: ast.AST) -> bool:
    """Return whether a node asserts, raises, or calls a function that may do so.

    Such functions are imported from a package other than Hypothesis, or have a name such as `check_...`.
    """
    if isinstance(node, ast.Assert | ast.Raise):
        return True
    if not isinstance(node, ast.Call):
        return False
    name = name_of(node)
    package = definition.imported.get(name, "").partition(".")[0] if isinstance(node.func, ast.Name) else ""
    return package not in ("", "hypothesis") or any(word in name.lower() for word in ASSERTING_WORDS)

"""The texts of the files that `pv new` writes."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from pv.commands.callee import Callee
from pv.commands.signature import Parameter

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
    """The names that the files of one contract share. `schema`: its path from the folder of the contract."""

    name: str
    module: str
    test: str
    faults: str
    schema: str

    @property
    def prefix(self) -> str:
        """Return the start of the ids of its claims."""
        return re.sub(r"[^A-Z0-9]+", "-", self.name.upper()).strip("-")


def project(roots: Sequence[str]) -> str:
    """Return the table of a project."""
    return f"[tool.pv]\nroots = {json.dumps(list(roots))}\n"


def example(names: Names) -> tuple[str, str]:
    """Return the contract of the example and its attack."""
    return _filled(EXAMPLE_CONTRACT, names), _filled(EXAMPLE_TEST, names)


def contract(names: Names, callee: Callee, expression: str = "") -> str:
    """Return the contract of a function. expression: the value by its docstring; "" leaves the equation to fill in."""
    summary = callee.text.partition("\n")[0] or f"What {callee.name} returns"
    words = {"function": callee.name, "word": callee.name.replace(".", "_")}
    equation = _filled(EQUATION, names, **words, **_equation(callee, expression))
    claim = _filled(CLAIM, names, **words)
    if not expression:
        equation, claim = TO_FILL_IN + _commented(equation), _commented(claim)
    description = json.dumps(summary, ensure_ascii=False)
    return _filled(CONTRACT, names, **words, description=description, equation=equation, claim=claim)


def _equation(callee: Callee, expression: str) -> dict[str, str]:
    """Return the parts of an equation: of a formula, or of one to fill in."""
    used = set(re.findall(r"\w+", expression))
    also = tuple(each for each in callee.optional if each.name in used)
    shown = [*callee.all_parameters, *also]
    domain = ", ".join(f'{each.variable}: "{each.domain if expression else _filled_in(each.domain)}"' for each in shown)
    changed = shown[0].variable if shown else "FILL IN"
    returns = f"\n    returns: {changed}  # an argument that it changes, as it is after the call"
    arrays = any("[N]" in each.domain for each in shown if each.variable in used)
    return {
        "domain": domain,
        "expression": expression or "FILL IN",
        "call": callee.call(lambda each: each.argument(each.variable), also),
        "result": "    result: real[N]\n" if arrays else "",
        "returns": returns if callee.silent else "",
    }


def _commented(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())


def _filled_in(proposal: str) -> str:
    return f"FILL IN, such as {proposal}" if proposal else "FILL IN"


def attack(names: Names, callee: Callee) -> str:
    """Return the falsifier of a function."""
    drawn = callee.all_parameters
    unknown = [each.name_in_test for each in drawn if not _is_tried(each, callee)]
    why = f"valid values of {', '.join(unknown)}" if callee.steady else "a claim about the random result"
    return _filled(
        TEST,
        names,
        function=callee.name,
        imports="\nimport torch" if any("torch." in each.strategy for each in drawn) else "",
        nothing=_filled(NOTHING, names, function=callee.name) if callee.silent else "",
        filling=_filled(FILLING, names, why=why) if unknown else "\n",
        strategies="\n".join(_strategy(each, callee) for each in drawn),
        names=", ".join(each.name_in_test for each in drawn),
        call=callee.call(lambda each: each.argument(f"copy.deepcopy({each.name_in_test})")),
    )


def _is_tried(parameter: Parameter, callee: Callee) -> bool:
    """Return whether the proposed strategy is used as it is."""
    return parameter.known and callee.steady


def _strategy(parameter: Parameter, callee: Callee) -> str:
    if _is_tried(parameter, callee):
        return f"    {parameter.name_in_test}={parameter.strategy},"
    such = f"such as {parameter.strategy}" if parameter.strategy else f"values of {parameter.annotation or 'any type'}"
    return f"    {parameter.name_in_test}=FILL_IN,  # {such}"


def faults(names: Names) -> str:
    """Return the wrong version of a function."""
    return _filled(FAULTS, names)


def _filled(text: str, shared: Names, **words: str) -> str:
    common = {key: getattr(shared, key) for key in ("name", "module", "test", "faults", "schema", "prefix")}
    return Template(text).substitute({**common, **words})

"""Rules are collected in the order in which they are defined, with the codes that they declare."""

from pathlib import Path
from types import ModuleType

from pv.contract.codes import Code
from pv.contract.finding import Location, Severity
from pv.engines.kinds import KINDS
from pv.engines.rule import Context, error, notice, rule, rules_of, unbound
from pv.linting import RULES
from pv.source.resolve import Unbound

HERE = Location(Path("c.yaml"))


def test_rules_of_a_module_keep_their_order() -> None:
    module = ModuleType("rules")
    first, second = (rule(Code(name, "a meaning"))(lambda context: iter(())) for name in ("PV902", "PV901"))
    vars(module).update(second=first, helper=lambda: None, context=Context, first=second)
    assert rules_of(module) == (first, second)


def test_severity_follows_the_constructor() -> None:
    assert error("PV901", HERE, "m").severity is Severity.ERROR
    assert notice("PV901", HERE, "m", "h").severity is Severity.NOTICE


def test_unresolved_name_gets_the_code_of_its_problem_and_a_suggestion() -> None:
    problem = Unbound("name", "no function 'doubel'", ("double", "half"))
    found = unbound({"file": "PV901", "name": "PV902"}, HERE, problem, "doubel")
    assert (found.code, found.hint) == ("PV902", "did you mean 'double'?")


def test_rules_of_every_kind_are_linted() -> None:
    carried = [each for kind in KINDS.values() for each in kind.rules]
    assert {code.name for each in carried for code in each.codes} >= {"PV184", "PV190", "PV192"}
    assert all(each in RULES for each in carried)

"""Numbers, names, expressions and lists out of all bounds are findings, and soon."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pv.contract.finding import Finding

Write = Callable[[str | bytes], Path]
Refusals = Callable[[Path], list[str]]
Problems = Callable[..., list[Finding]]

GOOD = (Path(__file__).parents[1] / "bad_contracts" / "good.yaml").read_text(encoding="utf-8")
SOON_S = 60.0


@pytest.mark.parametrize(
    "number", ["9" * 10**5, "1e999", "-1e999", ".inf", "-.inf", ".nan", "0x" + "f" * 10**4, "1" * 500]
)
@pytest.mark.parametrize("key", ["examples", "limit"])
def test_a_number_out_of_all_bounds_is_refused(number: str, key: str, write: Write, refusals: Refusals) -> None:
    path = write(GOOD.replace("  kills:", f"  {key}: {number}\n  kills:"))
    assert {said.split(" ")[0] + said.split(" ")[1] for said in refusals(path)} == {f"12:{len(key) + 5}PV012"}


@pytest.mark.parametrize("find", ["(" * 1000, "a" + ".b" * 20_000, "[" * 90 + "]" * 90, '"\\0"', "\\0"])
def test_a_mutant_nested_beyond_the_parser_does_not_apply(find: str, write: Write, problems: Problems) -> None:
    path = write(GOOD.replace("find: number * 2", f"find: {find!r}"))
    assert [finding.code for finding in problems(path)] == ["PV133"]


def kills(names: list[str]) -> str:
    return GOOD.replace("[tripled]", f"[{', '.join(['tripled', *names])}]")


MANY = {
    "unknown mutants": (kills([f"m{i}" for i in range(40_000)]), "PV130"),
    "unknown keys": (GOOD + "".join(f"falsifierz{i}: 1\n" for i in range(30_000)), "PV010"),
    "obligations": (
        GOOD.replace("[{id: O, ", "[" + "".join(f"{{id: O{i}, statement: x}}, " for i in range(10_000)) + "{id: O, "),
        "PV141",
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_many_problems_do_not_hold_up_the_check(name: str, write: Write, problems: Problems) -> None:
    content, code = MANY[name]
    path, started = write(content), time.process_time()
    assert code in {finding.code for finding in problems(path)}
    assert time.process_time() - started < SOON_S

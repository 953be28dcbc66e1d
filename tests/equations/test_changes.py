"""Of an equation itself: every one-symbol change is listed with its place, and told apart by what the code answered."""

import ast

import pytest
import torch

from pv.equations.changes import changes
from pv.equations.parsed import parse_equations

EQUIVALENT = {
    # The domain has no mass of zero, so that nothing is left out.
    "kl": {
        "sum(exp(log_p) * (log_p - log_q), V) for sum(exp(log_p) * (log_p - log_q), V, where=log_p > -inf)",
        "log_p >= -inf for log_p > -inf",
        "log_q for log_p",
    },
    "topk_kl_with_tail": {"tail_p >= -inf for tail_p > -inf", "1 for 0", "-1 for 0", "tail_q for tail_p"},
    # No step is negative.
    "cosine_schedule": {"-1 for 0"},
    "linear_schedule": {"-1 for 0"},
    # Both branches are the peak where the warm-up ends.
    "warmup_then_cosine": {"-1 for 0", "step <= warmup for step < warmup"},
    # Less than rounding of the norms that are drawn.
    "clip_gradients": {"total - 1e-06 for total + 1e-06", "total for total + 1e-06", "2e-06 for 1e-06"},
    # Both branches meet there.
    "huber": {"abs(a) < delta for abs(a) <= delta"},
    # Nothing that is drawn has exactly this mass.
    "top_p_sampling": {"cumsum(p, R) - p <= keep for cumsum(p, R) - p < keep"},
}
"""The changes that no example shows, by the equation that they are of, each group with the reason."""


def found(equations, name):
    parsed, problems = parse_equations(equations)
    assert problems == []
    callees = {each: equation.callee for each, equation in parsed.items()}
    return list(changes(name, callees, parsed[name].results))


def said(change):
    return change["equation"], f"{change['after']} for {change['before']}"


def test_a_change_is_shown_with_its_place(formulas) -> None:
    shown = {(c.equation, c.line, c.column, c.before, c.after) for c in found(formulas, "kd_loss")}
    assert shown >= {
        ("kd_loss", 1, 10, "y != -100", "y == -100"),
        ("kd_loss", 3, 23, "t / tau", "t"),
        ("kd_loss", 3, 23, "t", "s"),
        ("kd_loss", 4, 40, "2", "1"),
        ("kd_loss", 4, 6, "ce_weight", "kd_weight"),
        ("kl", 1, 27, "log_q", "log_p"),
    }


@pytest.mark.parametrize(
    ("expression", "expected"),
    {
        "a + b": {"a - b", "a", "b", "b + b", "a + a"},
        "a - b": {"a + b", "a", "-b", "b - b", "a - a"},
        "a // 3": {"a / 3", "a", "b // 3", "a // 4", "a // 2"},
        "a ** 0.5": {"a * 0.5", "a", "b ** 0.5", "a ** 1.0"},
        "log(a)": {"log1p(a)", "log(b)"},
        "where(a < b, 1, a)": {
            *("where(a <= b, 1, a)", "where(a >= b, 1, a)", "where(a < b, a, 1)", "where(a < b, 2, a)"),
            *("where(a < b, 0, a)", "where(b < b, 1, a)", "where(a < a, 1, a)", "where(a < b, 1, b)"),
        },
        "sum(x, N, where=x > a)": {
            *("mean(x, N, where=x > a)", "sum(x, N)", "sum(x, N, where=x >= a)", "sum(x, N, where=x <= a)"),
            "sum(x, N, where=x > b)",
        },
        "max(x)": {"min(x)"},
        "c = a\nc * sum(x)": {
            "c = b\nc * sum(x)",
            "c = a\nc / sum(x)",
            "c = a\nc",
            "c = a\nsum(x)",
            "c = a\nc * mean(x)",
        },
    }.items(),
)
def test_the_changes_of_a_small_equation_are_these(expression, expected) -> None:
    domain = {"a": "real 1..2", "b": "real 1..2", "x": "real[N]"}
    every = found({"e": {"domain": domain, "expression": expression}}, "e")
    shown = {"\n".join(_line(line) for line in change.callees["e"].formula.lines) for change in every}
    assert shown == expected
    assert len(every) == len(expected)


def _line(line) -> str:
    return (f"{line.name} = " if line.name else "") + ast.unparse(line.value)


def test_an_axis_is_changed_where_another_fits() -> None:
    domain = {"x": "real[N,M]"}
    (change,) = found({"e": {"domain": domain, "result": "real[N,M]", "expression": "softmax(x, N)"}}, "e")[-1:]
    assert (change.before, change.after) == ("N", "M")


def test_an_equation_that_is_called_is_changed_too(formulas) -> None:
    assert {change.equation for change in found(formulas, "gjsd")} == {"gjsd", "kl"}


@pytest.mark.parametrize("name", ["kl", "kd_loss", "kd_gradient", "topk_kl_with_tail", "adamw", "attention", "huber"])
def test_a_change_is_told_apart_unless_it_is_none(name, formulas, implementations, tried) -> None:
    record = tried(formulas, name, implementations, examples=100)
    missed = {said(change) for change in record["changes"]["survivors"]}
    assert missed == {(each, text) for each in {name, "kl"} for text in EQUIVALENT.get(each, set())} & {
        (change.equation, f"{change.after} for {change.before}") for change in found(formulas, name)
    }
    assert record["changes"]["told_apart"] == record["changes"]["total"] - len(missed) > 0


def test_a_tolerance_that_hides_everything_leaves_no_change_to_be_seen(formulas, implementations, tried) -> None:
    wide = {**formulas["huber"], "tolerance": {"absolute": 1e9, "why": "a test"}}
    record = tried({"huber": wide}, "huber", implementations, examples=20)
    assert (record["ending"], record["changes"]["told_apart"]) == ("held", 0)


def test_an_infinite_value_lets_nothing_else_pass(tried) -> None:
    equations = {
        "e": {
            "domain": {"x": "real[N] 1..2"},
            "result": "real[N]",
            "expression": "where(x > 1.5, inf, x)",
            "implemented_by": "f(x)",
        }
    }
    right = tried(equations, "e", {"f": lambda x: torch.where(x > 1.5, torch.inf, x)})
    assert right["ending"] == "held"
    assert {said(change)[1] for change in right["changes"]["survivors"]} <= {"x >= 1.5 for x > 1.5"}
    assert tried(equations, "e", {"f": lambda x: x})["ending"] == "refuted"
    assert tried(equations, "e", {"f": lambda x: torch.where(x > 1.5, torch.inf, 2 * x)})["ending"] == "refuted"

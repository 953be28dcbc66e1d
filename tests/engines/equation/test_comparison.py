"""Calls of the code under contract: its arguments, its device, its gradient."""

import numpy
import pytest
import torch

from tests.equations.conftest import tried as tried


def doubled(**keys):
    usual = {"domain": {"x": "real[N]"}, "result": "real[N]", "expression": "2 * x", "implemented_by": "f(x)"}
    return {"e": {**usual, **keys}}


def test_code_that_writes_into_its_arguments_is_compared_at_the_original_values(tried) -> None:
    domain = {"x": "real[N]", "m": "mask[N]"}
    equations = doubled(domain=domain, expression="where(m, 2 * x, 0)", implemented_by="f(x, m)")

    def careless(x, m):
        x.mul_(2).mul_(m)
        m.zero_()
        return x

    assert tried(equations, "e", {"f": careless})["status"] == "held"
    record = tried(equations, "e", {"f": lambda x, m: careless(x, m) * 2})
    assert record["inputs"]["m"].any()


def test_code_without_a_gradient_is_refuted(tried) -> None:
    equations = {
        "square": {"domain": {"x": "real[N] 1..2"}, "expression": "sum(x**2)", "implemented_by": "square(x)"},
        "slope": {
            "derivative_of": {"equation": "square", "with_respect_to": "x"},
            "result": "real[N]",
            "expression": "2 * x",
        },
    }
    record = tried(equations, "slope", {"square": lambda x: (x.detach() ** 2).sum()})
    says = "the result of the code of square carries no gradient, so it cannot be differentiated by x"
    assert (record["error"], record["exact"]) == (says, True)
    assert tried(equations, "slope", {"square": lambda x: (x**2).sum()})["status"] == "held"


def test_only_the_arrays_of_the_code_are_on_the_device(tried) -> None:
    """On the device `meta` arrays have no numbers: whatever else were there could not be evaluated or compared."""
    equations = {
        "size": {
            "domain": {"x": "real[N,M]", "y": "index of N [M]", "m": "mask[N]", "tau": "real 1..2", "many": "mask"},
            "requires": "sum(x, N, M) > 0 and any(m, N)",
            "result": "real, real[N]",
            "expression": "tau * N, where(m, 0, 0) + M",
            "implemented_by": "size(x, y, [m], tau, many)",
            "invariants": ["sum(x, N, M) > 0"],
        }
    }
    # Every call notes where its arguments are.
    calls = []

    def size(x, y, masks, tau, many):
        calls.append([array.device.type for array in (x, y, *masks)] + [type(tau), type(many)])
        return tau * x.shape[0], torch.full((x.shape[0],), float(x.shape[1]))

    record = tried(equations, "size", {"size": size}, device="meta", examples=30)
    assert (record["status"], record["valid"]) == ("held", 30)
    assert calls == [["meta", "meta", "meta", float, bool]] * 30
    wrong = tried(equations, "size", {"size": lambda x, *others: size(x.T, *others)}, device="meta")
    assert wrong["status"] == "refuted"
    assert wrong["inputs"]["x"].device.type == "cpu"


def test_nan_inside_the_domain_is_an_error_of_the_contract(tried) -> None:
    entropy = {"domain": {"p": "prob[V]"}, "result": "real", "implemented_by": "f(p)"}
    plain = {**entropy, "expression": "-sum(p * log(p), V)"}
    record = tried({"entropy": plain}, "entropy", {"f": lambda p: -(p * p.log()).sum()})
    assert record["detail"].startswith("entropy has no value (NaN) here, inside its domain")
    whole = {**entropy, "expression": "-sum(p * log(p), V, where=p > 0)"}
    assert tried({"entropy": whole}, "entropy", {"f": lambda p: torch.special.entr(p).sum()})["status"] == "held"


@pytest.mark.parametrize(
    ("keys", "status", "detail"),
    [
        ({"expression": "where(N > 1, x[1], x[0])"}, "held", ""),
        ({"expression": "x[1]", "requires": "x[1] > -99"}, "held", ""),
        ({"expression": "x[1]"}, "error", "e has no value (NaN) here, inside its domain"),
    ],
)
def test_literal_index_beyond_a_drawn_size_selects_nothing(tried, keys, status, detail) -> None:
    record = tried(doubled(result="real", **keys), "e", {"f": lambda x: x[:2][-1]})
    assert (record["status"], record["detail"].partition(";")[0]) == (status, detail)


def pair(call, **keys):
    domain = {"g": "real[N] 1..5", "h": "real[N] 1..5", "n": "int 2..3", "N": "size 1..3"}
    equation = {"domain": domain, "result": "real[N]", "expression": "g + h", "implemented_by": call}
    return {"e": {**equation, "checks": ["inputs_unchanged"], **keys}}


def replaced(xs, name):
    total = xs["g"] + xs["h"]
    xs[name] = total
    return total


@pytest.mark.parametrize(
    ("call", "code", "argument"),
    [
        ("f([g, h])", lambda xs: (xs[0] + xs[1], xs.clear())[0], "[g, h]"),
        ("f(xs={'g': g, 'h': h})", lambda xs: replaced(xs, "g"), "{'g': g, 'h': h}"),
        ("f(xs={'g': g, 'h': h})", lambda xs: xs["g"] + xs.setdefault("i", xs.pop("h")), "{'g': g, 'h': h}"),
        ("f([g, h])", lambda xs: xs[0].add_(xs[1]), "[g, h]"),
        ("f(zip(g, h))", lambda xs: torch.tensor([sum(xs.pop(0)) for _ in list(xs)]), "zip(g, h)"),
    ],
)
def test_code_that_changes_a_container_of_the_call_is_refuted(tried, call, code, argument) -> None:
    domain = {"domain": {"g": "real[N] 1..5", "h": "real[N] 6..9", "N": "size 1..3"}}
    record = tried(pair(call, **domain), "e", {"f": code})
    assert record["error"] == f"the code of f changed its argument {argument}"
    assert tried(pair(call, **domain, checks=[]), "e", {"f": code})["status"] == "held"


NOISY = {"tolerance": {"absolute": 1e-3, "why": "noise"}}


@pytest.mark.parametrize(
    ("settings", "check", "code", "says"),
    [
        ({}, {"checks": ["inputs_unchanged"]}, lambda x: x.mul_(2), "changed its argument x"),
        ({}, {"result_dtype": "input"}, lambda x: (x * 2).double(), "returned float64, `result_dtype` is float32"),
        (
            *(NOISY, {"checks": ["repeatable"]}, lambda x: x * 2 + 1e-9 * torch.rand(x.shape)),
            "returned another result in a second call with equal arguments",
        ),
    ],
)
def test_code_that_a_check_forbids_is_refuted_where_it_is_asked_for(tried, settings, check, code, says) -> None:
    assert tried(doubled(**settings, **check), "e", {"f": code})["error"] == f"the code of f {says}"
    assert tried(doubled(**settings), "e", {"f": code})["status"] == "held"
    assert tried(doubled(**settings, **check), "e", {"f": lambda x: x * 2})["status"] == "held"


def test_result_may_be_selected_and_have_another_dtype(tried) -> None:
    assert tried(doubled(returns="result['loss'] / 2"), "e", {"f": lambda x: {"loss": 4 * x}})["status"] == "held"
    assert tried(doubled(expression="x > 0"), "e", {"f": lambda x: x > 0})["status"] == "held"
    code = {"f": lambda x: (x * 2).double()}
    assert tried(doubled(result_dtype="float64"), "e", code)["status"] == "held"
    assert tried(doubled(result_dtype="input", dtypes=["float64"]), "e", code)["status"] == "held"


def test_counterexample_has_the_call_and_the_place_of_the_code(tried) -> None:
    def wrong(x):
        return x * 3

    record = tried(doubled(), "e", {"f": wrong})
    assert "all elements are multiplied by 1.5" in record["error"], "the cause is lost when the example is shrunk"
    assert record["call"] == "f(tensor([1.0], float32))"
    line = wrong.__code__.co_firstlineno
    assert record["frames"] == [f"{__file__}:{line} in {wrong.__qualname__}: def wrong(x):"]


def test_replay_tries_the_point_itself_and_does_not_shrink_it(tried) -> None:
    arguments = '{"x": {"$tensor": {"dtype": "float32", "shape": [2], "data": [3.5, 0.0]}}}'
    record = tried(doubled(), "e", {"f": lambda x: x * 3}, replay=arguments)
    assert record["inputs"]["x"].tolist() == [3.5, 0.0]
    assert (record["status"], record["valid"], record["shrunk"]) == ("refuted", 1, False)
    outside = tried(doubled(requires="sum(x) > 9"), "e", {"f": lambda x: x * 3}, replay=arguments)
    assert (outside["status"], outside["invalid"]) == ("no examples", 1)
    shrunk = tried(doubled(requires="sum(x) > 9"), "e", {"f": lambda x: x * 3})
    assert shrunk["shrunk"] and shrunk["inputs"]["x"].sum() > 9, "`requires` admits the smallest counterexample"


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (lambda x: x.exp(), "held"),
        (lambda x: torch.where(x.exp().isinf(), -x.exp(), x.exp()), "refuted"),
        (lambda x: x.exp().clamp_max(3e38), "refuted"),
        (lambda x: torch.full_like(x, torch.inf), "refuted"),
        (lambda x: x.exp().double(), "refuted"),
    ],
    ids=["infinite", "sign", "finite", "infinite too early", "of a wider dtype"],
)
def test_infinity_is_accepted_where_the_value_exceeds_the_dtype(tried, result, status) -> None:
    """In float32 exp(x) is infinite from x = 88.7."""
    equations = doubled(domain={"x": "real[N] 1..200"}, expression="exp(x)")
    assert tried(equations, "e", {"f": result})["status"] == status


def yielding(x):
    yield x * 2


async def awaited(x):
    return x * 2


async def streamed(x):
    yield x * 2


COMPLEX = "the code of f returned complex numbers, the equation has real values"
NOT_RUN = "f returned a {}, which cannot be compared: write a function that returns its values"
DICT = "f returned an object of type dict: select the value with `returns`, such as `result['loss']`"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("code", "status", "says"),
    [
        (lambda x: torch.complex(x * 2, x), "refuted", COMPLEX),
        (lambda x: [complex(float(2 * y), 0) for y in x], "refuted", COMPLEX),
        (yielding, "error", NOT_RUN.format("generator")),
        (streamed, "error", NOT_RUN.format("generator")),
        (awaited, "error", NOT_RUN.format("coroutine")),
        (lambda x: {"loss": x}, "error", DICT),
    ],
)
def test_result_that_is_no_real_number_is_named(tried, code, status, says) -> None:
    record = tried(doubled(), "e", {"f": code})
    assert (record["status"], record["error" if status == "refuted" else "detail"]) == (status, says)


@pytest.mark.parametrize(("code", "named"), [(lambda x: 2 * x + 0 * numpy.max(x), True), (lambda x: x + None, False)])
def test_failure_of_numpy_code_names_the_tensor_arguments(tried, code, named) -> None:
    record = tried(doubled(), "e", {"f": code})
    assert record["status"] == "raised"
    assert record["error"].count("the arguments are torch tensors") == named
    assert tried(doubled(), "e", {"f": lambda x: numpy.asarray(x) * 2})["status"] == "held"


IN_PLACE = {
    "step": {
        "domain": {"p": "real[N]", "g": "real[N]", "m": "real[N]", "rate": "real 0.1..1"},
        "result": "real[N], real[N]",
        "expression": "m1 = 0.9 * m + 0.1 * g\np - rate * m1, m1",
        "implemented_by": "step([p], g, m, rate)",
    }
}


def stepped(parameters, g, m, rate, *, after=True):
    m.mul_(0.9).add_(g, alpha=0.1)
    parameters[0].sub_(rate * (m if after else g))


def test_code_that_works_in_place_is_compared_by_its_arguments_after_the_call_that_are_named(tried) -> None:
    equations = {"step": IN_PLACE["step"] | {"returns": "p, m", "checks": ["repeatable"]}}
    assert tried(equations, "step", {"step": stepped})["status"] == "held"
    wrong = tried(equations, "step", {"step": lambda *values: stepped(*values, after=False)})
    assert wrong["status"] == "refuted"
    assert "(1 of several)" in wrong["error"]
    text = tried(IN_PLACE, "step", {"step": lambda *_: "ab"})
    assert text["detail"] == "step returned an object of type str: select the 2 values with `returns`"
    record = tried(IN_PLACE, "step", {"step": stepped})
    assert record["status"] == "error"
    assert "step returned None: name the argument that it changes, such as `returns: p`" in record["detail"]

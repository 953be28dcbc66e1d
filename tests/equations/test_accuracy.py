"""In what types the code gets its numbers, how close it must come in each, and who may say otherwise."""

import json

import pytest
import torch

SOFTMAX = {
    "domain": {"x": "real[V] 0.3..0.7"},
    "result": "real[V]",
    "expression": "exp(x) / sum(exp(x))",
    "implemented_by": "f(x)",
}
NARROW = ["bfloat16", "float16"]


def equation(**more):
    return {"e": {**SOFTMAX, **more}}


def in_float32(x):
    return x.float().softmax(-1)


def in_its_own_type(x):
    return x.exp() / x.exp().sum()  # each operation is rounded


def rounded_at_the_end(x):
    return x.float().softmax(-1).to(x.dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", *NARROW])
def test_the_code_gets_numbers_of_the_type_within_the_bounds(dtype, tried) -> None:
    given = []

    def spy(x):
        given.append(x)
        return in_float32(x)

    assert tried(equation(dtypes=[dtype]), "e", {"f": spy})["ending"] == "held"
    assert {str(x.dtype) for x in given} == {f"torch.{dtype}"}
    assert all(0.3 <= float(v) <= 0.7 for x in given for v in x.double())
    assert len({float(v) for x in given for v in x}) > 20


def test_types_take_turns(tried) -> None:
    given = []
    tried(equation(dtypes=["float32", "bfloat16"]), "e", {"f": lambda x: given.append(x.dtype) or in_float32(x)})
    assert given[:4] == [torch.float32, torch.bfloat16] * 2


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("code", [in_float32, rounded_at_the_end])
def test_float32_inside_is_what_is_claimed_of_narrow_types(code, dtype, tried) -> None:
    assert tried(equation(dtypes=[dtype]), "e", {"f": code}, examples=300)["ending"] == "held"


@pytest.mark.parametrize("dtype", NARROW)
def test_code_that_computes_in_a_narrow_type_must_say_so(dtype, tried) -> None:
    assert tried(equation(dtypes=[dtype]), "e", {"f": in_its_own_type})["ending"] == "refuted"
    assert tried(equation(dtypes=[dtype], precision="input"), "e", {"f": in_its_own_type})["ending"] == "held"


def test_float64_is_held_to_float64_where_that_is_claimed(tried) -> None:
    wide = equation(dtypes=["float64"], precision="input")
    assert tried(wide, "e", {"f": in_its_own_type})["ending"] == "held"
    record = tried(wide, "e", {"f": in_float32})
    assert record["ending"] == "refuted"
    assert record["inputs"]["x"].dtype is torch.float64


@pytest.mark.parametrize("dtype", NARROW)
def test_a_fault_of_one_type_is_shown_in_that_type_and_replayed(dtype, tried) -> None:
    def wrong(x):
        return in_float32(x) * (1 if x.dtype is torch.float32 else 1.01)

    equations = equation(dtypes=["float32", dtype])
    record = tried(equations, "e", {"f": wrong})
    assert record["ending"] == "refuted"
    assert str(record["inputs"]["x"].dtype) == f"torch.{dtype}"
    again = tried(equations, "e", {"f": wrong}, replay=json.dumps(record["arguments"]))
    assert (again["ending"], again["error"], again["arguments"]) == ("refuted", record["error"], record["arguments"])


def test_a_fault_of_every_type_is_shown_in_the_plainest(tried) -> None:
    record = tried(equation(dtypes=["bfloat16", "float32"]), "e", {"f": lambda x: 2 * in_float32(x)})
    assert record["inputs"]["x"].dtype is torch.float32


def test_a_derivative_is_given_the_types_of_its_equation(tried) -> None:
    equations = {
        "square": {
            "domain": {"x": "real[N] 1..2"},
            "expression": "sum(x**2)",
            "implemented_by": "square(x)",
            "dtypes": ["bfloat16"],
        },
        "slope": {
            "derivative_of": {"equation": "square", "with_respect_to": "x"},
            "result": "real[N]",
            "expression": "2 * x",
        },
    }
    given = []
    code = {"square": lambda x: given.append(x.dtype) or x.float().square().sum()}
    assert tried(equations, "slope", code)["ending"] == "held"
    assert set(given) == {torch.bfloat16}
    record = tried(equations, "slope", {"square": lambda x: x.float().pow(2.02).sum()})
    assert record["error"].startswith("Refuted: the derivative of the code of square by x is")


TOLERANCE = {"relative": 1e-3, "absolute": 0, "why": "a table of ten bits"}


def test_a_tolerance_stands_in_the_place_of_what_was_measured(tried) -> None:
    def off_by(share):
        return {"f": lambda x: in_float32(x) * (1 + share)}

    assert tried(equation(), "e", off_by(5e-4))["ending"] == "refuted"
    assert tried(equation(tolerance=TOLERANCE), "e", off_by(5e-4))["ending"] == "held"
    record = tried(equation(tolerance=TOLERANCE), "e", off_by(5e-3))
    assert record["ending"] == "refuted"
    assert "; its tolerance allows ±0.0005" in record["error"]


def test_a_tolerance_may_be_none_at_all(tried) -> None:
    exact = {"e": {**SOFTMAX, "expression": "2 * x", "tolerance": {"absolute": 0, "why": "doubling is exact"}}}
    assert tried(exact, "e", {"f": lambda x: x + x})["ending"] == "held"
    assert tried(exact, "e", {"f": lambda x: x * 2.0000002384185791})["ending"] == "refuted"


def test_a_tolerance_does_not_loosen_what_equations_say_of_each_other(tried) -> None:
    equations = {
        "square": {"domain": {"x": "real 1..2"}, "expression": "x**2", "implemented_by": "square(x)"},
        "slope": {
            "derivative_of": {"equation": "square", "with_respect_to": "x"},
            "expression": "2.0001 * x",
            "tolerance": {"relative": 0.1, "why": "a test"},
        },
    }
    record = tried(equations, "slope", {"square": lambda x: x**2})
    assert record["error"].startswith("Refuted: the derivative of the equation square by x is")


def test_code_that_writes_into_its_arguments_is_held_against_what_it_was_given(tried) -> None:
    equations = {
        "e": {"domain": {"x": "real[N]", "m": "mask[N]"}, "result": "real[N]", "expression": "where(m, 2 * x, 0)"}
    }
    equations["e"]["implemented_by"] = "f(x, m)"

    def careless(x, m):
        x.mul_(2).mul_(m)
        m.zero_()
        return x

    assert tried(equations, "e", {"f": careless})["ending"] == "held"
    record = tried(equations, "e", {"f": lambda x, m: careless(x, m) * 2})
    assert record["inputs"]["m"].any()


def test_code_without_a_gradient_is_no_code_with_one(tried) -> None:
    equations = {
        "square": {"domain": {"x": "real 1..2"}, "expression": "x**2", "implemented_by": "square(x)"},
        "slope": {"derivative_of": {"equation": "square", "with_respect_to": "x"}, "expression": "2 * x"},
    }
    record = tried(equations, "slope", {"square": lambda x: x.detach() ** 2})
    assert record["error"] == (
        "Refuted: what the code of square gives cannot be differentiated by x: it carries no gradient"
    )
    assert tried(equations, "slope", {"square": lambda x: x**2})["ending"] == "held"


def test_the_code_alone_is_on_the_device(tried) -> None:
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
    given = []

    def size(x, y, masks, tau, many):
        given.append([each.device.type for each in (x, y, *masks)] + [type(tau), type(many)])
        return tau * x.shape[0], torch.full((x.shape[0],), float(x.shape[1]))

    record = tried(equations, "size", {"size": size}, device="meta", examples=30)
    assert (record["ending"], record["valid"]) == ("held", 30)
    assert given == [["meta", "meta", "meta", float, bool]] * 30
    wrong = tried(equations, "size", {"size": lambda x, *others: size(x.T, *others)}, device="meta")
    assert wrong["ending"] == "refuted"
    assert wrong["inputs"]["x"].device.type == "cpu"


def test_changes_are_judged_on_the_cpu_alone(tried) -> None:
    equations = {"e": {"domain": {"x": "real[N]"}, "expression": "N + 1", "implemented_by": "f(x)"}}
    code = {"f": lambda x: x.shape[0] + 1}
    assert "changes" not in tried(equations, "e", code, device="meta")
    assert "changes" not in tried(equations, "e", code, stop_at_first=True)
    assert tried(equations, "e", code)["changes"]["told_apart"] > 0


def test_an_invariant_holds_row_by_row_or_nearly(tried) -> None:
    """Of two rows that cancel one may come out a rounding below 0, beside one that is far above."""
    divergence = {
        "domain": {"s": "logits[N,V]", "t": "logits[N,V]"},
        "result": "real[N]",
        "expression": "sum(softmax(t, V) * (log_softmax(t, V) - log_softmax(s, V)), V)",
        "implemented_by": "kl(s, t)",
        "invariants": ["divergence(s, t) >= 0"],
    }

    def kl(s, t):
        return torch.nn.functional.kl_div(s.log_softmax(-1), t.log_softmax(-1), log_target=True, reduction="none").sum(
            -1
        )

    peaks = {"s": [37.0, 0.0, 0.0, 0.0, 0.0, 0.0], "t": [38.0, 0.0, 0.0, 0.0, 0.0, 1.0]}
    tensors = {k: {"$tensor": {"dtype": "float32", "shape": [2, 3], "data": v}} for k, v in peaks.items()}
    assert tried({"divergence": divergence}, "divergence", {"kl": kl}, replay=json.dumps(tensors))["ending"] == "held"
    wrong = {**divergence, "invariants": ["divergence(s, t) > 0.01"]}
    record = tried({"divergence": wrong}, "divergence", {"kl": kl})
    assert record["error"].startswith("Refuted: the invariant `divergence(s, t) > 0.01`")


@pytest.mark.parametrize("wrong", ["zero(x) != 0", "zero(x) > 0", "zero(x) < 0", "zero(x) == 1"])
def test_an_invariant_that_never_holds_is_refuted(tried, wrong: str) -> None:
    equation = {"domain": {"x": "real[N]"}, "result": "real", "expression": "sum(x * 0, N)", "implemented_by": "f(x)"}
    equation["invariants"] = ["zero(x) >= 0", wrong]
    record = tried({"zero": equation}, "zero", {"f": lambda x: (x * 0).sum()})
    assert record["error"].startswith(f"Refuted: the invariant `{wrong}` of zero does not hold here")


def test_entropy_needs_its_convention_where_an_outcome_has_no_mass(tried) -> None:
    entropy = {"domain": {"p": "prob[V]"}, "result": "real", "implemented_by": "f(p)"}
    plain = {**entropy, "expression": "-sum(p * log(p), V)"}
    record = tried({"entropy": plain}, "entropy", {"f": lambda p: -(p * p.log()).sum()})
    assert record["detail"].startswith("entropy has no value (NaN) here, inside its domain")
    whole = {**entropy, "expression": "-sum(p * log(p), V, where=p > 0)"}
    assert tried({"entropy": whole}, "entropy", {"f": lambda p: torch.special.entr(p).sum()})["ending"] == "held"


def test_where_rounding_leaves_no_number_the_code_may_have_none(tried) -> None:
    """In float32 the first row sums to 1 or to a rounding less; of the second the logarithm is plain."""
    rest = {
        "domain": {"p": "real[N,M] 0..0.5", "N": "size 2..2", "M": "size 2..2"},
        "result": "real[N]",
        "requires": "all(sum(p, M) < 1, N)",
        "expression": "log(1 - sum(p, M))",
        "implemented_by": "rest(p)",
    }
    rows = {"p": {"$tensor": {"dtype": "float32", "shape": [2, 2], "data": [0.5, 0.5 - 2**-25, 0.25, 0.25]}}}

    def trial(first, second):
        code = {"rest": lambda p: torch.stack([torch.tensor(first), (1 - p[1].sum()).log() + second])}
        return tried({"rest": rest}, "rest", code, replay=json.dumps(rows))["ending"]

    assert trial(-torch.inf, 0.0) == trial(-17.0, 0.0) == "held"
    assert trial(-torch.inf, 1e-3) == trial(-17.0, 1e-3) == trial(-17.0, -torch.inf) == "refuted"

"""A file with every section becomes the contract that it describes, each clause with its place."""

from dataclasses import replace
from pathlib import Path

from pv.contract.finding import Location
from pv.contract.load import load
from pv.contract.model import (
    Binding,
    Contract,
    Edit,
    Equation,
    Equivalent,
    Falsifier,
    Gate,
    Harness,
    Mutant,
    MutationScope,
    Name,
    NotClaimed,
    Obligation,
    OtherSubject,
    Run,
    Swap,
    Target,
    Waiver,
)
from tests.support.projects import write

TEXT = """\
schema: pv/1
metadata: {id: c, version: 1.0.0, description: d, references: [r]}
subject: "tiny:Box"
domains: {small: real 0..1}
constants: {most: 8}
use: [base.kl]
equations:
  e: {domain: {x: real}, expression: x, formula: f, tolerance: {relative: 1, why: w}}
obligations: [{id: O, statement: s}]
falsifiers:
- {id: F, obligation: O, rule: "r ", prediction: p, if_fails: i, test: "t.py::f", kills: [m], devices: [cpu, cuda],
   run: whole, examples: 5, limit: 7}
- {id: G, rule: r, prediction: p, if_fails: i, equation: e, subject: other}
harnesses:
- {id: H, rule: r, if_fails: i, predicate: "t.py::h", bounds: {n: 0..9}, requires: n > 1, engine: both}
runs:
- {name: whole, callable: "t.py::run", arguments: {n: 9}, small: {n: 1}, limit: 3}
- {name: script, command: [sh, a], arguments: {n: 9, m: 2}, small: {n: 1}, environment: {A: b}, claims: [TR-GRAD-001]}
mutants:
- {id: m, fault: "f ", edit: {function: "tiny:f", find: a, replace: b}, seen_in: real code}
- {id: n, fault: f, swap: {object: "tiny:f", with: "faults:f"}}
equivalents: [{function: "tiny:f", find: a, replace: b, reason: "same "}]
subjects:
- {name: peer, target: peers, package: peer, claims_as: own, not_claimed: [{falsifiers: [F], why: "w ", reference: r}]}
mutation_scope: {modules: [tiny, pkg.__init__], judges: [base]}
qa_gate: {id: G-1, name: g, require: {falsifiers: [F], mutants: all, cuda: fresh, mutation_score: 0.9}, devices: [cpu]}
waivers: [{owner: ann, reason: why, expires: "2026-11-26", weaker: F}]
"""


def at(path: Path, line: int, column: int = 3) -> Location:
    return Location(path, line, column)


def test_every_section_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.YAML"
    write(tmp_path, {path.name: TEXT, ".old/c.yaml": TEXT})
    loaded = load([tmp_path])
    assert loaded.findings == ()
    (read,) = loaded.contracts
    edit = Edit(function=Target("tiny", "f"), find="a", replace="b")
    words = {"rule": "r", "prediction": "p", "if_fails": "i"}
    first = Falsifier(
        id="F", obligation="O", **words, test=Binding("t.py", "f"), kills=("m",), devices=("cpu", "cuda"), run="whole",
        examples=5, limit_s=7, location=at(path, 11),
    )  # fmt: skip
    box = Harness(id="H", rule="r", if_fails="i", test=Binding("t.py", "h"), bounds={"n": "0..9"}, requires="n > 1",
                  engine="both", location=at(path, 15))  # fmt: skip
    executable = {"domain": {"x": "real"}, "expression": "x", "tolerance": {"relative": 1, "why": "w"}}
    whole = {"callable": Binding("t.py", "run"), "limit_s": 3, "small": {"n": 1}}
    script = {"command": ("sh", "a"), "environment": {"A": "b"}, "small": {"n": 1, "m": 2}}
    not_claimed = NotClaimed(falsifiers=("F",), why="w", reference="r", places=(at(path, 24, 90),))
    expected = Contract(
        id="c", version="1.0.0", description="d", location=at(path, 1, 1), strict=True, references=("r",),
        subject=Target("tiny", "Box"), domains={"small": "real 0..1"}, constants={"most": 8},
        use=(Name(text="base.kl", location=at(path, 6, 7)),),
        equations=(Equation(name="e", location=at(path, 8), formula="f", executable=executable),),
        obligations=(Obligation(id="O", statement="s", location=at(path, 9, 15)),),
        falsifiers=(first, Falsifier(id="G", **words, equation="e", subject=Target("other"), location=at(path, 13))),
        harnesses=(box,),
        runs=(
            Run(name="whole", location=at(path, 17), arguments={"n": 9}, **whole),
            Run(name="script", location=at(path, 18), arguments={"n": 9, "m": 2}, **script,
                claims=(Name(text="TR-GRAD-001", location=at(path, 18, 106)),)),
        ),
        mutants=(
            Mutant(id="m", fault="f", change=edit, seen_in="real code", location=at(path, 20)),
            Mutant(id="n", fault="f", location=at(path, 21),
                   change=Swap(object=Target("tiny", "f"), replacement=Target("faults", "f"))),
        ),
        equivalents=(Equivalent(change=edit, reason="same", location=at(path, 22, 15)),),
        subjects=(
            OtherSubject(name="peer", target=Target("peers"), package="peer", claims_as="own",
                         not_claimed=(not_claimed,), location=at(path, 24)),
        ),
        mutation_scope=MutationScope(
            modules=(Name(text="tiny", location=at(path, 25, 28)),
                     Name(text="pkg.__init__", location=at(path, 25, 34))),
            judges=(Name(text="base", location=at(path, 25, 58)),),
        ),
        gate=Gate(id="G-1", name="g", falsifiers=frozenset("F"), fresh=frozenset({"cuda"}), mutation_score=0.9,
                  devices=("cpu",), location=at(path, 26, 10)),
        waivers=(Waiver(owner="ann", reason="why", expires="2026-11-26", weaker="F", location=at(path, 27, 11)),),
    )  # fmt: skip
    functions = ("tiny:f", "tiny.sub:f", "pkg:f", "pkg.sub:f", "tinyish:f")
    assert [read.mutation_scope.holds(function) for function in functions] == [True, True, True, False, False]
    judge = replace(read, id="base")
    assert replace(read, known={"base": judge}).judges == (judge,)
    assert replace(read, known={"c": read}).judges == replace(judge, known={"base": judge}).judges == ()
    observed, *rest = read.falsifiers
    assert (observed.id, observed.run) == ("c.script.TR-GRAD-001", "script")
    assert observed.options == {"observed": "TR-GRAD-001", "must_reach": True}
    claims = tuple(replace(claim, places={}) for claim in rest), (replace(read.harnesses[0], places={}),)
    equations = tuple(replace(equation, texts={}) for equation in read.equations)
    for name, value in vars_of(replace(read, falsifiers=claims[0], harnesses=claims[1], equations=equations)).items():
        assert value == getattr(expected, name), name


def vars_of(contract: Contract) -> dict[str, object]:
    return {name: getattr(contract, name) for name in Contract.__slots__ if name not in ("places", "known")}

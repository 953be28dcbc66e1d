"""What a contract in the field's existing format states in vain is reported, each at its place."""

from pathlib import Path

import pytest

from pv.contract.load import load_file

TEXT = """\
metadata: {version: 1.0.0, description: d, references: [r], depends_on: [other]}
equations:
  double: {formula: y = 2x, domain: x real, invariants: [y even]}
proof_obligations:
- {id: O, type: invariant, property: it doubles, applies_to: double, lean: {theorem: T, status: proved}}
- {id: P, type: postcondition, property: it ends, requires: O, applies_to_phase: first, parent_contract: other}
falsification_tests:
- {id: F, rule: r, prediction: p, if_fails: i, test: prose}
kani_harnesses:
- {id: K, obligation: O, bound: 4, strategy: exhaustive}
- {id: L, obligation: it ends}
- {id: M, obligation: double}
kernel_structure: {phases: [{name: first, description: d, invariant: i}]}
simd_dispatch: {double: {scalar: a, avx2: b}}
enforcement: {rule: {description: d, check: "contract_tests::F", severity: ERROR}}
qa_gate: {id: Q, name: q, checks: [any], pass_criteria: All 1 falsification tests pass + 3 Kani harnesses verify}
type_invariants:
- {name: n, type: t, predicate: p}
verification_summary:
  {total_obligations: 2, l2_property_tested: 2, l3_kani_proved: 2, l4_lean_proved: 1, l4_sorry_count: 0}
"""


def notices(folder: Path, old: str = "", new: str = "") -> list[str]:
    """Return the code, text and message of each notice about TEXT with `new` for `old`."""
    text = TEXT.replace(old, new) if old else TEXT
    assert (text == TEXT) == (old == new)
    (folder / "other.yaml").write_text(TEXT)
    (folder / "this.yaml").write_text(text)
    contract, findings = load_file(folder / "this.yaml")
    assert contract is not None
    lines = text.splitlines()
    return [f"{f.code} {lines[f.location.line - 1][f.location.column - 1 :].split()[0]} {f.message}" for f in findings]


@pytest.mark.parametrize(
    ("old", "new", "block"),
    [
        ("metadata: {", "colour: blue\nmetadata: {", ""),
        ("metadata: {", "metadata: {colour: blue, ", "metadata"),
        ("- {id: O", "- {colour: blue, id: O", "proof_obligations"),
        ("- {id: F", "- {colour: blue, id: F", "falsification_tests"),
    ],
)
def test_unknown_key_is_reported_in_every_block(tmp_path: Path, old: str, new: str, block: str) -> None:
    place = f" in {block!r}" if block else ""
    assert notices(tmp_path, old, new) == [f"PV201 colour: unknown key 'colour'{place}: pv does not read it"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("obligations: 2", "obligations: 17", "17, 'total_obligations' is 17; the file has 2"),
        ("lean_proved: 1", "lean_proved: 2", "2, 'l4_lean_proved' is 2; the file has 1"),
        ("All 1 f", "All 6 f", "All 'pass_criteria' counts 6 falsification_tests; the file has 1"),
    ],
)
def test_number_that_contradicts_the_file_is_reported(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert notices(tmp_path, old, new) == [f"PV205 {message}"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "obligation: O",
            "obligation: NOPE",
            "NOPE, 'obligation' names 'NOPE', which is not an obligation or equation",
        ),
        ("contract: other", "contract: no", "no} 'parent_contract' names 'no', which is not in 'depends_on'"),
        ("tests::F", "tests::G", "\"contract_tests::G\", 'check' names 'G', which is not a falsification test"),
    ],
)
def test_dangling_reference_is_reported(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert notices(tmp_path, old, new) == [f"PV206 {message} of this file"]


def test_contract_that_is_not_beside_the_file_is_reported(tmp_path: Path) -> None:
    message = "'depends_on' names 'gone', which is not a contract beside this file"
    assert notices(tmp_path, "[other]", "[other, gone]") == [f"PV206 gone]}} {message}"]
    (tmp_path / "gone.yaml").write_text(TEXT)
    assert notices(tmp_path, "[other]", "[other, gone]") == []

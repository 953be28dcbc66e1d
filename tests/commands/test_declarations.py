"""Declarations of an adapter are read from its source, and compared with the declarations in a commit."""

import pytest

from pv.commands.declarations import find_weakenings, old_names_note, read_declarations

BEFORE = """
MISSING = ("save", "evaluate")

class Base(HandWritten):
    features = {"loss": True, **dict.fromkeys(MISSING, "none")}
    tolerance = 1e-9

class Adapter(Base):
    features = {**Other.features, "save": True}
    not_claimed = {"TL-DATA-001": "drops one"}
"""


def less(after: str) -> list[str]:
    return [
        text for _, text in find_weakenings(read_declarations(BEFORE, "Adapter"), read_declarations(after, "Adapter"))
    ]


LESS = {
    ('"save": True', '"save": True, "accumulate": "none"'): "`accumulate` is now declared missing ('none')",
    ('"save": True', '"save": REASON'): "`save` is now declared missing (REASON)",
    ('("save", "evaluate")', '"save evaluate clip".split()'): "`clip` is now declared missing ('none')",
    ('("save", "evaluate")', '("save", *("evaluate", "clip"))'): "`clip` is now declared missing ('none')",
    ('{**Other.features, "save": True}', '{"save": True} | {"clip": WHY}'): "`clip` is now declared missing (WHY)",
    ("tolerance = 1e-9", "tolerance: float = 1e-3"): "`tolerance` is 0.001, was 1e-09",
    ('{"loss": True, **', "{**"): "`features` no longer sets `loss` to True",
    ('{"TL-DATA-001":', '{"TL-CLIP-001": "never", "TL-DATA-001":'): "`not_claimed` now names TL-CLIP-001",
    ("1e-9", "1e-3"): "`tolerance` is 0.001, was 1e-09",
    ("    not_c", "    without = ('accumulate',)\n    not_c"): "`accumulate` is now declared missing",
}


@pytest.mark.parametrize(("old", "new"), LESS)
def test_declaration_that_leaves_out_more_is_reported(old: str, new: str) -> None:
    assert BEFORE.count(old) == 1
    (text,) = less(BEFORE.replace(old, new))
    assert text.startswith(LESS[old, new])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('"save": True', '"save": True, "evaluate": True'),
        ("1e-9", "1e-12"),
        (
            'class Adapter(Base):\n    features = {**Other.features, "save": True}',
            "YES = True\nclass Adapter(Base):\n    features = {'save': YES}",
        ),
    ],
)
def test_declaration_that_leaves_out_less_is_not_reported(old: str, new: str) -> None:
    assert less(BEFORE.replace(old, new)) == []


@pytest.mark.parametrize("value", ["computed()", "{name: True}", "{**computed()}", "[each for each in names]"])
def test_computed_declarations_are_not_whole(value: str) -> None:
    assert not read_declarations(f"class Adapter:\n    features = {value}\n", "Adapter").is_whole


def test_the_first_base_class_and_the_class_itself_come_first() -> None:
    source = (
        "class A:\n    tolerance = 1\nclass B:\n    tolerance = 2\nclass C(A, B): ...\nclass D(A):\n    tolerance = 3\n"
    )
    assert [read_declarations(source, name).tolerance for name in "ABCD"] == [1, 2, 1, 3]


@pytest.mark.parametrize("value", ["{**FEATURES, 'save': True}", "FEATURES | {'save': True}"])
def test_constant_that_extends_an_imported_one_of_its_name_is_not_whole(value: str) -> None:
    source = f"from base import FEATURES\nFEATURES = {value}\nclass Adapter:\n    features = FEATURES\n"
    assert not read_declarations(source, "Adapter").is_whole


def test_circular_base_classes_are_read() -> None:
    assert read_declarations("class A(B): ...\nclass B(A): ...\n", "A").is_whole


def test_declarations_of_a_function_are_attributes() -> None:
    source = "def make(): ...\nmake.features = {'mask': 'an image counts'}\n"
    assert read_declarations(source, "make").missing == {"mask": "'an image counts'"}


def test_assignments_after_a_class_replace_its_declarations() -> None:
    body = "class A:\n    not_claimed = {'X': 'x'}\n    tolerance = 1\nclass B(A): ...\n"
    source = f"{body}A.not_claimed = {{'Y': 'y'}}\nA.tolerance = 2\nA.features = {{'clip': True}}\n"
    for name in "AB":
        declared = read_declarations(source, name)
        assert (declared.not_claimed, declared.tolerance, declared.features) == ({"Y"}, 2, {"clip"})
    for value, features in {"{'rate': True}": {"rate"}, "{**A.features, 'rate': True}": {"loss", "rate"}}.items():
        source = f"class A:\n    features = {{'loss': True}}\nA.features = {value}\n"
        assert read_declarations(source, "A").features == features


def test_names_of_version_0_2_have_a_note_with_the_new_names() -> None:
    source = "class A:\n    has = ('keep',)\n    lacks = {'clip': WHY}\n    logged = ('rate',)\n"
    assert old_names_note("loop:A", read_declarations(source, "A")) == (
        "loop:A: `has`, `lacks`, `logged` will not be read from version 0.5 on; "
        'write `features = {"keep": True, "rate": True, "clip": WHY}`'
    )
    assert old_names_note("loop:A", read_declarations("class A: ...", "A")) == ""

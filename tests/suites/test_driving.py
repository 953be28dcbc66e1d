from typing import Any

from pv.suites.driving import Driven, name_of, parameters_of


class Base:
    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self.seed = size, seed


class Passing(Base):
    def __init__(self, width: int, **settings: Any) -> None:
        super().__init__(width, **settings)


class Own(Base):
    def __init__(self, width: int) -> None:
        super().__init__(width)


def test_parameters_of_base_classes_are_those_of_a_class_that_passes_them_on() -> None:
    assert {"width", "size", "seed"} <= parameters_of(Passing).keys()
    assert parameters_of(Own).keys() == {"width"}


def test_a_function_is_named_by_its_name_and_a_number_by_itself() -> None:
    assert (name_of(Own), name_of(3)) == ("Own", "3")


def test_a_claim_is_missing_with_all_its_reasons() -> None:
    def make() -> None: ...

    make.lacks = {"state": "it is a function"}  # type: ignore[attr-defined]
    make.not_claimed = {"A-001": "its guide says so"}  # type: ignore[attr-defined]
    driven = Driven()
    driven.make = make
    driven.lack({"seed": "", "ranks": "it takes none"})
    assert driven.missing("A-001", ("state", "seed", "ranks")) == (
        "no state: it is a function; no ranks: it takes none; its guide says so"
    )
    assert driven.missing("A-002", ("seed",)) == ""

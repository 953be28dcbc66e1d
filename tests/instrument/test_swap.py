"""What a swap puts in the place of an object."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from pv.errors import BrokenMutant
from pv.instrument.swap import swap


class Box:
    """A class with one attribute of each kind."""

    def __init__(self, size: int) -> None:
        self.size = size

    def doubled(self, more: int = 0) -> int:
        return 2 * self.size + more

    @property
    def half(self) -> float:
        return self.size / 2

    @staticmethod
    def unit() -> int:
        return 1

    @classmethod
    def named(cls) -> str:
        return cls.__name__


def area(width: int, height: int = 1) -> int:
    """Return the area."""
    return width * height


@pytest.fixture
def module() -> ModuleType:
    result = ModuleType("made")
    result.area = area
    result.Box = type("Box", (Box,), dict(vars(Box)))
    return result


def plus_one(original: Any, *args: Any, **kwargs: Any) -> Any:
    return original(*args, **kwargs) + 1


def test_replacement_calls_the_original_whatever_kind_of_attribute_it_is(module: ModuleType) -> None:
    for name in ("area", "Box.doubled", "Box.half", "Box.unit"):
        swap(module, name, plus_one)
    swap(module, "Box.named", lambda original, *args: original(*args).upper())
    assert (module.area(2, height=3), module.area.__doc__) == (7, "Return the area.")
    box = module.Box(4)
    assert (box.doubled(more=5), box.half, box.unit(), box.named()) == (14, 3, 2, "BOX")


@pytest.mark.parametrize("name", ["volume", "Box.tripled"])
def test_unknown_object_is_a_broken_mutant(module: ModuleType, name: str) -> None:
    with pytest.raises(BrokenMutant, match=f"made has no '{name}'"):
        swap(module, name, plus_one)


@contextmanager
def opened_twice(original: Any, width: int, height: int = 1) -> Iterator[int]:
    yield original(original(width))


def test_replacement_that_is_a_context_manager_gets_the_original(module: ModuleType) -> None:
    swap(module, "area", opened_twice)
    with module.area(3) as seen:
        assert seen == 3


@pytest.mark.parametrize(
    ("new", "complaint"),
    [
        (lambda original, width: width, "too many positional arguments"),
        (lambda width, height, depth: width, "missing a required argument: 'height'"),
    ],
)
def test_replacement_with_other_parameters_is_a_broken_mutant(module: ModuleType, new: Any, complaint: str) -> None:
    with pytest.raises(BrokenMutant, match=f"{new.__name__} does not take the arguments of area: {complaint}"):
        swap(module, "area", new)
    assert module.area(2, 3) == 6

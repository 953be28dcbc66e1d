"""Falsifiers and a run, for the contracts beside this project. Lint reads them; only a sound contract runs them."""

from types import ModuleType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=20)
@given(number=st.integers())
def falsify_double(subject: ModuleType, number: int) -> None:
    assert subject.double(number) == number + number


@given(number=st.integers())
def falsify_without_a_subject(number: int) -> None:
    assert number == number


@settings(deadline=None)
@given(number=st.integers())
def falsify_without_a_deadline(subject: ModuleType, number: int) -> None:
    assert subject.double(number) == number + number


def falsify_with_a_folder(subject: ModuleType, tmp_path: Any) -> None:
    assert subject.double(1) == len(str(tmp_path))


def falsify_without_an_assert(subject: ModuleType) -> bool:
    return bool(subject.double(1) == 2)


@given(number=st.integers())
def falsify_nothing(subject: ModuleType, number: int) -> None:
    subject.double(number)


def falsify_run(run: Any) -> None:
    assert run.result == 2


def doubles(subject: ModuleType, device: str, directory: Any, trace: Any, number: int) -> int:
    result: int = subject.double(number)
    return result

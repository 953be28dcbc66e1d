from collections.abc import Mapping
from functools import partial

import pytest

from pv.suites.training_loop.adapters import NoAdapter, adapted
from pv.suites.training_loop.job import Job, Report


class Own:
    lacks: Mapping[str, str] = {}
    not_claimed: Mapping[str, str] = {}
    tolerance = 1e-9

    def __init__(self, size: int = 1) -> None:
        self.size = size

    def run(self, job: Job) -> Report:
        return Report(model=job.model())


class Demanding(Own):
    def __init__(self, size: int) -> None:
        super().__init__(size)


def test_adapter_with_arguments_is_created_by_a_partial() -> None:
    with pytest.raises(NoAdapter, match="Demanding is created without arguments"):
        adapted(Demanding)
    assert adapted(partial(Demanding, 3)()).size == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("other", [object(), len, dict, 3, "transformers"])
def test_other_subjects_are_refused_with_the_lines_to_write(other: object) -> None:
    with pytest.raises(NoAdapter, match=r"(?s)cannot adapt .*def run\(self, job: Job\) -> Report"):
        adapted(other)


@pytest.mark.parametrize("where", ["lacks", "has", "without"])
def test_unknown_features_are_refused_with_the_nearest_known_one(where: str) -> None:
    with pytest.raises(NoAdapter, match=f"Own.{where} names an unknown feature 'evaluation'; did you mean 'evaluate'"):
        setattr(made := Own(3), where, {"evaluation": "none"})
        adapted(made)


def test_missing_and_invalid_values_are_refused() -> None:
    with pytest.raises(NoAdapter, match=r"missing attribute Bare\.lacks: expected a dictionary of features to reasons"):
        adapted(type("Bare", (), {"run": lambda self, job: None}))
    made = Own(3)
    made.without = "masks"  # type: ignore[attr-defined]
    with pytest.raises(NoAdapter, match=r"invalid Own\.without 'masks': expected a sequence of features, such as"):
        adapted(made)


def test_method_in_place_of_a_value_is_refused() -> None:
    class Adapter(Own):
        def tokens(self) -> range:
            return range(9)

    with pytest.raises(NoAdapter, match=r"Adapter\.tokens must be a sequence of ids, it is a method: write it as an "):
        adapted(Adapter)

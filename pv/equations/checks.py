"""The claims of an equation that values alone do not show: the keys `checks` and `result_dtype`."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Check(StrEnum):
    """A check of the code besides its values, as it is written in a contract."""

    INPUTS_UNCHANGED = "inputs_unchanged"
    """The code does not write into its arguments."""
    REPEATABLE = "repeatable"
    """A second call with equal arguments returns the same bits."""
    NONCONTIGUOUS_INPUTS = "noncontiguous_inputs"
    """The code also agrees with the equation if its arrays are not contiguous."""
    EXPANDED_INPUTS = "expanded_inputs"
    """The code also agrees with the equation if its arrays are expanded, so that slices share memory."""


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of one equation. result_dtype: "" for any, `input` for that of the arrays."""

    names: frozenset[Check] = frozenset()
    result_dtype: str = ""

    def dtype(self, of_arrays: str) -> str:
        """Return the dtype that the result must have, for arrays of the given dtype; "" for any."""
        return of_arrays if self.result_dtype == "input" else self.result_dtype


def checks(keys: Mapping[str, Any]) -> Checks:
    """Return the checks that the keys of an equation claim."""
    return Checks(frozenset(map(Check, keys.get("checks", ()))), str(keys.get("result_dtype", "")))

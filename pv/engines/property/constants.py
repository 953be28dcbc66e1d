"""Limit the modules whose constants Hypothesis draws, so that other modules do not change the examples of a claim.

By default, Hypothesis draws the constants of every loaded module of the project: editing or loading an unrelated test
would give a claim other examples.
"""

import sys
from functools import cache, reduce
from operator import or_
from typing import Any

from hypothesis.internal.conjecture import providers

# The private names of Hypothesis that are replaced or used here.
PARTS = ("_get_local_constants", "_local_constants", "constants_from_module", "CONSTANTS_CACHE")


def draw_from(*modules: str) -> None:
    """Let Hypothesis draw the constants of these loaded modules, and of no other module.

    This also saves memory: by default, Hypothesis inspects every loaded module, which in a fork copies much of the
    memory of the parent. If a version of Hypothesis does not have the private names of `PARTS`, nothing changes.
    """
    # There is no public setting, so replace a private function.
    if not all(hasattr(providers, part) for part in PARTS):
        return
    _, no_constants, read, drawn_cache = (getattr(providers, part) for part in PARTS)

    @cache
    def constants() -> Any:
        return reduce(or_, (read(sys.modules[name]) for name in modules), no_constants)

    providers._get_local_constants = constants
    drawn_cache.cache.clear()

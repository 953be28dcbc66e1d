"""Limit the modules whose constants Hypothesis draws, so that other modules do not change the examples of a claim.

By default, Hypothesis draws constants from the source of every loaded module of the project: an edit of an unrelated
test would change the examples of a claim.
"""

import sys
from functools import cache, reduce
from operator import or_
from typing import Any

from hypothesis.internal.conjecture import providers

# The private names of Hypothesis that are replaced or used here.
PRIVATE_NAMES = ("_get_local_constants", "_local_constants", "constants_from_module", "CONSTANTS_CACHE")


def draw_from(*modules: str) -> None:
    """Let Hypothesis draw constants only from these loaded modules.

    This also saves memory: by default, Hypothesis inspects every loaded module, which in a forked process copies much
    of the memory of the parent. A version of Hypothesis without the private names is left unchanged.
    """
    # There is no public setting, so replace a private function.
    if not all(hasattr(providers, name) for name in PRIVATE_NAMES):
        return
    _, no_constants, constants_of, pool_cache = (getattr(providers, name) for name in PRIVATE_NAMES)

    @cache
    def constants() -> Any:
        return reduce(or_, (constants_of(sys.modules[name]) for name in modules), no_constants)

    providers._get_local_constants = constants
    pool_cache.cache.clear()

"""Limit the files that Hypothesis reads constants from, so that loading another module does not change the examples.

Without the limit, Hypothesis reads the constants of every loaded module of the project: editing or loading an unrelated
test would give a claim other examples.
"""

import sys
from functools import cache, reduce
from operator import or_
from typing import Any

from hypothesis.internal.conjecture import providers

PARTS = ("_get_local_constants", "_local_constants", "constants_from_module", "CONSTANTS_CACHE")


def only_from(*modules: str) -> None:
    """Let Hypothesis draw the constants of these modules, which are loaded, and of no other.

    There is no public setting. A version of Hypothesis without these names draws what it draws by default. Hypothesis
    itself would inspect every loaded module, which in a fork copies much of the memory of the parent.
    """
    if not all(hasattr(providers, part) for part in PARTS):
        return
    _, none, read, cached = (getattr(providers, part) for part in PARTS)

    @cache
    def constants() -> Any:
        return reduce(or_, (read(sys.modules[name]) for name in modules), none)

    providers._get_local_constants = constants
    cached.cache.clear()

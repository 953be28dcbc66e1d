"""Chooses the files whose constants Hypothesis draws as examples, besides its own.

Hypothesis reads every module of the project that is loaded, so a claim would be tried on other examples once any other
test changes or is loaded beside it.
"""

from collections.abc import Iterable

from hypothesis.internal.conjecture import providers


def only_from(files: Iterable[str]) -> None:
    """Let Hypothesis draw the constants in `files` and in no other, of the modules that it has not looked at yet.

    There is no public setting. A version of Hypothesis without these names draws what it draws by default.
    """
    if hasattr(providers, "is_local_module_file"):
        providers.is_local_module_file = frozenset(files).__contains__


def skip_loaded() -> None:
    """Draw no constants of the modules that are loaded now. A fork server looks at each of them once for all forks."""
    only_from(())
    if hasattr(providers, "_get_local_constants"):
        providers._get_local_constants()

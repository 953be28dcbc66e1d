"""The environment of a result: interpreter, processor, packages, environment variables, and the source of pv."""

import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pv.results.own_code import DECIDING_PACKAGES, PACKAGE
from pv.source.digest import digest_bytes

DROPPED = frozenset(
    "_ PWD OLDPWD SHLVL PS1 TERM COLORTERM COLUMNS LINES WINDOWID DISPLAY WAYLAND_DISPLAY HOSTNAME LS_COLORS TMUX "
    "TMUX_PANE STY SECURITYSESSIONID SESSION_MANAGER INVOCATION_ID JOURNAL_STREAM "
    "BUILD_ID BUILD_NUMBER BUILD_TAG BUILD_URL JOB_URL EXECUTOR_NUMBER GIT_COMMIT GIT_PREVIOUS_COMMIT".split()
)
DROPPED_PREFIXES = (
    *("TERM_", "ITERM_", "KITTY_", "GNOME_TERMINAL_", "WT_", "SSH_", "VSCODE_", "XDG_", "DBUS_", "PYTEST_"),
    *("GITHUB_", "RUNNER_", "ACTIONS_", "CI_", "GITLAB_", "CIRCLE_", "BUILDKITE_", "JENKINS_", "TRAVIS_", "BITBUCKET_"),
)
"""Variables of a terminal, a session, pytest or a CI run.

Workers do not inherit them, so no result can depend on them.
"""

OVERRIDES = frozenset({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"})
"""Variables with which images of GPU vendors lower the precision of float32 products below the requested one."""

SET_BY_WORKERS = frozenset({"TMPDIR"})
"""Variables that every worker sets to its own value, so the value here does not matter."""


def worker_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that workers inherit.

    The seed of string hashes is 0 unless the user sets it, so that sets have the same order in every worker.
    """
    variables = {
        name: value
        for name, value in environ.items()
        if name not in DROPPED | OVERRIDES and not name.startswith(DROPPED_PREFIXES)
    }
    return {"PYTHONHASHSEED": "0", **variables}


def environment() -> list[str]:
    """Return the description of this environment: lines such as `system=Linux`.

    The values of environment variables and source files are digests.
    """
    packages = sorted({line for folder in sys.path for line in _packages(Path(folder))})
    sources = (path for package in DECIDING_PACKAGES for path in sorted((PACKAGE / package).rglob("*.py")))
    inherited = {name: value for name, value in worker_variables(os.environ).items() if name not in SET_BY_WORKERS}
    variables = [f"variable {name}={digest_bytes(value.encode())}" for name, value in sorted(inherited.items())]
    source = [f"pv/{path.relative_to(PACKAGE)}={digest_bytes(path.read_bytes())}" for path in sources]
    return [f"Python={sys.version}", f"system={platform.system()}", *_processor(), *packages, *variables, *source]


def differences(then: Iterable[str], now: Iterable[str]) -> list[str]:
    """Return the names that have different values in two descriptions, such as `Python`."""
    return sorted({line.partition("=")[0] for line in {*then} ^ {*now}})


def _processor() -> list[str]:
    """Return the architecture and the capabilities of the processor, by which libraries choose their kernels.

    The version of the C library is a further line.
    """
    lines = [f"processor={platform.machine()}", f"C library={'/'.join(platform.libc_ver())}"]
    with suppress(OSError):
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        # Every core has such a line, "flags" on x86 and "Features" on Arm: take the first.
        lines += [f"capabilities={line}" for line in facts if line.startswith(("flags", "Features"))][:1]
    return lines


def _packages(folder: Path) -> Iterator[str]:
    """Yield the packages in a folder of `sys.path`, with their versions and entry points.

    An editable install can change the entry points without the version. Name and version are read from the names of the
    metadata folders: `importlib.metadata` would parse every metadata file, which takes longer than all other steps.
    """
    for pattern in ("*.dist-info", "*.egg-info"):
        for metadata in folder.glob(pattern):
            name, _, version = metadata.stem.partition("-")
            entry_points = metadata / "entry_points.txt"
            content = entry_points.read_bytes() if entry_points.is_file() else b""
            yield f"package {name}={version} {digest_bytes(content)}"

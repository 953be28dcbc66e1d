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
"""Variables of a terminal, a session or a CI run. Workers do not inherit them, so no result can depend on them."""

OVERRIDES = frozenset({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"})
"""Variables with which images of GPU vendors lower the precision of float32 products below the requested one."""

OWN = frozenset({"TMPDIR"})
"""Variables that are set to another value in every worker."""


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of workers.

    The seed of string hashes is 0 unless the user sets it, so that sets have the same order in every worker.
    """
    variables = {
        name: value
        for name, value in environ.items()
        if name not in DROPPED | OVERRIDES and not name.startswith(DROPPED_PREFIXES)
    }
    return {"PYTHONHASHSEED": "0", **variables}


def environment() -> list[str]:
    """Return the description of this environment."""
    packages = sorted({line for folder in sys.path for line in _packages(Path(folder))})
    deciding = (path for package in DECIDING_PACKAGES for path in sorted((PACKAGE / package).rglob("*.py")))
    counted = {name: value for name, value in inherited(os.environ).items() if name not in OWN}
    variables = [f"variable {name}={digest_bytes(value.encode())}" for name, value in sorted(counted.items())]
    source = [f"pv/{path.relative_to(PACKAGE)}={digest_bytes(path.read_bytes())}" for path in deciding]
    return [f"Python={sys.version}", f"system={platform.system()}", *_processor(), *packages, *variables, *source]


def differences(then: Iterable[str], now: Iterable[str]) -> list[str]:
    """Return the names of the lines that differ between two descriptions."""
    return sorted({line.partition("=")[0] for line in {*then} ^ {*now}})


def _processor() -> list[str]:
    """Return the architecture and the capabilities of the processor, by which libraries choose their kernels."""
    described = [f"processor={platform.machine()}", f"C library={'/'.join(platform.libc_ver())}"]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        described += [f"capabilities={line}" for line in lines if line.startswith(("flags", "Features"))][:1]
    return described


def _packages(folder: Path) -> Iterator[str]:
    """Yield the packages in a folder of `sys.path`, with their versions and entry points.

    An editable install can change the entry points without the version. The names of the metadata folders are read
    instead of `importlib.metadata`, which parses every file of metadata and takes longer than the rest of this module.
    """
    for pattern in ("*.dist-info", "*.egg-info"):
        for metadata in folder.glob(pattern):
            name, _, version = metadata.stem.partition("-")
            points = metadata / "entry_points.txt"
            yield f"package {name}={version} {digest_bytes(points.read_bytes() if points.is_file() else b'')}"

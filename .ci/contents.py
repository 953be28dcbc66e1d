"""Checks what the distributions in a folder hold: `python .ci/contents.py FOLDER`, in a clone.

A wheel holds the tracked files of both packages and its metadata, an sdist also what building and reading need. So a
file that is not packaged, or packaged by accident, is named. NEEDED are files whose loss Git would not show.
"""

import subprocess
import sys
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

PACKAGES = ("pv/", "reference_trainer/")
BESIDE = {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml"}
WRITTEN = {".gitignore", "PKG-INFO"}  # by hatchling, into each sdist
NEEDED = (
    "pv/contract/rules/PV*.yaml",
    "pv/contract/schema/*.json",
    "pv/py.typed",
    "pv/report/html/*.css",
    "pv/report/html/*.js",
    "pv/suites/*/*.yaml",
    "reference_trainer/data/corpus/*.txt",
    "reference_trainer/data/corpus/LICENSE*",
    "reference_trainer/data/teacher/model.safetensors",
    "reference_trainer/py.typed",
)


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *PACKAGES], check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name}


def wheel(path: Path) -> set[str]:
    """Return the files of a wheel without its metadata."""
    return {name for name in zipfile.ZipFile(path).namelist() if ".dist-info/" not in name}


def sdist(path: Path) -> set[str]:
    """Return the files of an sdist, as they are called below its one folder."""
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()} - WRITTEN


def differences(name: str, found: set[str], expected: set[str]) -> list[str]:
    lacks = [pattern for pattern in NEEDED if not any(fnmatch(each, pattern) for each in found)]
    return [
        *(f"{name}: missing {each}" for each in sorted(expected - found)),
        *(f"{name}: unexpected {each}" for each in sorted(found - expected)),
        *(f"{name}: no file matches {each}" for each in lacks),
    ]


def main(folder: Path) -> int:
    (built,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    files = tracked()
    found = [*differences(built.name, wheel(built), files), *differences(source.name, sdist(source), files | BESIDE)]
    sys.stdout.write("".join(f"{line}\n" for line in found) or f"{len(files)} files of both packages, and no others\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

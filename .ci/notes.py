"""Checks that a clone is ready for the release of its version, and prints the notes: `python .ci/notes.py [--tag TAG]`.

`pv/__init__.py` defines the version. Both packages, CITATION.cff, the newest dated section of the changelog and the
pages that name the action have the same version. With a tag, as in the release workflow, the tag has it too, and no
placeholder of the owner is left.
"""

import re
import sys
from pathlib import Path

EXAMPLES = tuple(f".github/examples/{name}.yml" for name in ("loop", "matrix", "one-job", "script"))
NAMING_THE_ACTION = ("README.md", "docs/reports.md", *EXAMPLES)
PLACEHOLDER = "OWNER/pv"


def read(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def version(root: Path) -> str:
    (found,) = re.findall(r'^__version__ = "(.+)"$', read(root, "pv/__init__.py"), re.MULTILINE)
    return str(found)


def notes(root: Path, number: str) -> str:
    """Return the section of the changelog about a version, without heading; "" if it is not the newest dated one."""
    sections = re.split(r"^## ", read(root, "CHANGELOG.md"), flags=re.MULTILINE)[1:]
    dated = [section for section in sections if not section.startswith("Unreleased")]
    heading, _, text = dated[0].partition("\n")
    return text.strip() if re.fullmatch(rf"{re.escape(number)} \(\d{{4}}-\d\d-\d\d\)", heading) else ""


def problems(root: Path, tag: str) -> list[str]:
    """Return what keeps this clone from being released; `tag` is "" in a rehearsal."""
    number = version(root)
    found = []
    if f'__version__ = "{number}"' not in read(root, "reference_trainer/__init__.py"):
        found.append(f"reference_trainer/__init__.py: its version is not {number}")
    if not re.search(rf"^version: {re.escape(number)}$", read(root, "CITATION.cff"), re.MULTILINE):
        found.append(f"CITATION.cff: its version is not {number}")
    if not notes(root, number):
        found.append(f"CHANGELOG.md: the newest dated section is not '## {number} (YYYY-MM-DD)'")
    for page in NAMING_THE_ACTION:
        refs = set(re.findall(r"/pv@([\w.]+)", read(root, page))) - {f"v{number}"}
        found += [f"{page}: names the action @{ref}, not @v{number}" for ref in sorted(refs)]
    if tag and tag != f"v{number}":
        found.append(f"the tag {tag} is not v{number}")
    if tag:
        pages = [page for page in (*NAMING_THE_ACTION, "pyproject.toml") if PLACEHOLDER in read(root, page)]
        found += [f"{page}: replace {PLACEHOLDER} by the repository" for page in pages]
    return found


def main(arguments: list[str]) -> int:
    root, tag = Path(__file__).resolve().parents[1], arguments[1] if arguments[:1] == ["--tag"] else ""
    found = problems(root, tag)
    sys.stderr.write("".join(f"{line}\n" for line in found))
    sys.stdout.write("" if found else f"{notes(root, version(root))}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Count files, lines of code, comments, `Any` and vague names of each part of the repository, at one or more commits.

    python benchmarks/code_size.py v0.2.0 HEAD

Lines of code are those that are not blank, no comment and no part of a docstring. The judge of scripts (`pv/observe`,
`training_run`, the commands that run them) is counted apart, since it is newer than the rest.
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass

VAGUE = ("each", "found", "given", "own")
DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:)")
JUDGE = ("pv/observe/", "pv/suites/training_run/", "pv/commands/observed", "pv/commands/resumed")
PARTS: dict[str, Callable[[str], bool]] = {
    "pv without the judge of scripts": lambda path: path.startswith("pv/") and not path.startswith(JUDGE),
    "judge of scripts": lambda path: path.startswith(JUDGE),
    "reference_trainer": lambda path: path.startswith("reference_trainer/"),
    "falsifiers": lambda path: path.startswith("falsifiers/"),
    "tests without tests/observe": lambda path: path.startswith("tests/") and not path.startswith("tests/observe/"),
    "tests/observe": lambda path: path.startswith("tests/observe/"),
}


@dataclass
class Size:
    """The counts of a part."""

    files: int = 0
    code: int = 0
    comments: int = 0
    untyped: int = 0
    vague: int = 0

    def add(self, source: str) -> None:
        """Add the counts of a file."""
        apart = _docstring_lines(ast.parse(source))
        lines = source.splitlines()
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                self.comments += not DIRECTIVE.match(token.string)
                if lines[token.start[0] - 1].lstrip().startswith("#"):
                    apart.add(token.start[0])
        self.files += 1
        self.code += sum(bool(line.strip()) and number not in apart for number, line in enumerate(lines, 1))
        self.untyped += len(re.findall(r"\bAny\b", source))
        self.vague += sum(len(re.findall(rf"\b{word}\b", source)) for word in VAGUE)


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the line numbers of all docstrings, including docstrings of attributes."""
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    texts = (statement for body in bodies for statement in body if isinstance(statement, ast.Expr))
    return {
        number
        for text in texts
        if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        for number in range(text.lineno, (text.end_lineno or text.lineno) + 1)
    }


def sources(commit: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of every Python file at a commit."""
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                yield member.name, file.read().decode()


def main(commits: list[str]) -> None:
    for commit in commits:
        sizes = {name: Size() for name in PARTS}
        for path, source in sources(commit):
            for name, belongs in PARTS.items():
                if belongs(path):
                    sizes[name].add(source)
        print(f"{commit}\n{'':34}files   code  comments/100   Any  vague names")
        for name, size in sizes.items():
            share = 100 * size.comments / max(size.code, 1)
            print(f"  {name:31}{size.files:6}{size.code:7}{share:14.1f}{size.untyped:6}{size.vague:13}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["HEAD"])

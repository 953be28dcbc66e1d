"""Report at the end of a session which claims pytest did not collect, and how to collect them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pv.contract.wording import count, listed
from pv.pytest_plugin.claims import PREFIXES, has_no_function, is_named

if TYPE_CHECKING:
    from pv.contract.model import Contract, Falsifier
    from pv.source.project import Project

MAX_LINES = 8


@dataclass(eq=False)
class UncollectedClaims:
    """Records which claims became items of this session, and reports the others."""

    config: pytest.Config
    project: "Project"
    contracts: tuple["Contract", ...]
    collected: set[str] = field(default_factory=set)
    finished: bool = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note the claims of all items, before any is deselected."""
        from pv.pytest_plugin.claims import ClaimItem

        self.finished = True  # a controller of pytest-xdist collects nothing itself
        self.collected |= {item.claim.id for item in items if isinstance(item, ClaimItem) and item.mutant is None}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        claims = [(c, f) for c in self.contracts for f in c.claims if c.strict]
        missing = [(c, f) for c, f in claims if f.id not in self.collected]
        if not missing or not self.finished or not self._asked_for_all():
            return
        terminalreporter.write_line(f"pv: {len(missing)} of {len(claims)} claims were not collected", yellow=True)
        for line in self._lines(missing):
            terminalreporter.write_line(f"  {line}")

    def _asked_for_all(self) -> bool:
        """Return whether the user could expect claims: no arguments, or a folder with claims or contracts."""
        if self.config.args_source is not pytest.Config.ArgsSource.ARGS:
            return True
        folders = [Path(argument).resolve() for argument in self.config.args if Path(argument).is_dir()]
        contracts = [contract.location.path.resolve() for contract in self.contracts]
        return any(self.collected or any(c.is_relative_to(folder) for c in contracts) for folder in folders)

    def _lines(self, missing: Iterable[tuple["Contract", "Falsifier"]]) -> Iterator[str]:
        grouped: dict[str, list[str]] = {}
        for contract, claim in missing:
            grouped.setdefault(self._reason(contract, claim), []).append(claim.id)
        for reason, ids in list(grouped.items())[:MAX_LINES]:
            yield f"{listed(ids)}: {reason}"
        if len(grouped) > MAX_LINES:
            yield count(len(grouped) - MAX_LINES, "more file")

    def _reason(self, contract: "Contract", claim: "Falsifier") -> str:
        if has_no_function(claim):
            return f"run `pytest {contract.location.path}`"
        if not is_named(claim):
            return f"{claim.test} is not collected by pytest: names start with {' or '.join(PREFIXES)}"
        assert claim.test is not None
        path = self.project.root / claim.test.file
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"run `pytest {shown}`"


@dataclass(eq=False)
class MissingProject:
    """Reports why files of falsifiers were not collected if the project has no contract."""

    folder: Path
    seen: list[Path] = field(default_factory=list)

    def pytest_collect_file(self, file_path: Path) -> None:
        if file_path.suffix == ".py" and file_path.name.startswith(PREFIXES):
            self.seen.append(file_path)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.seen:
            files = listed([path.name for path in self.seen], 1)
            terminalreporter.write_line(f"pv: {files} not collected: no contract was found", yellow=True)
            folder = self.folder / "contracts"
            expected = f"a `schema: pv/1` file below {folder}, or a [tool.pv] table in pyproject.toml"
            terminalreporter.write_line(f"  expected {expected}")

"""Which falsifier noticed which automatic mutant, kept between runs while all that it rests on is unchanged."""

import json
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pv import records
from pv.canonical import digest_data
from pv.evidence import Trial
from pv.model import Contract, Falsifier
from pv.mutation.generate import Automatic
from pv.mutation.judge import FALLEN, Fate, Judged
from pv.project import Project

FOLDER = ".pv_cache"


class Memory:
    """What was noticed on earlier runs of one contract. A file that is not there or not readable remembers nothing."""

    def __init__(self, project: Project, contract: Contract, clean: Mapping[str, Trial]) -> None:
        self.path = project.root / FOLDER / "mutants" / f"{contract.id}.json"
        self._rests = {f.id: _rests(project, contract, f, clean[f.id]) for f in contract.claims if f.id in clean}
        self._known = _read(self.path)

    def recalled(self, mutant: Automatic, able: Iterable[Falsifier]) -> Judged | None:
        """What became of the mutant, if one of those that run it noticed it before, and is what it was."""
        for falsifier in able:
            fate = self._known.get(self._key(mutant, falsifier.id))
            if fate is not None:
                return Judged(mutant=mutant, fate=Fate(fate[0]), tried=(falsifier.id,), seen=fate[1], recalled=True)
        return None

    def keep(self, judged: Iterable[Judged], *, whole: bool) -> None:
        """Writes down what was noticed; after a run of the whole contract forgets what no longer holds."""
        noticed = (each for each in judged if each.fate in FALLEN and each.fate is not Fate.NOT_EQUIVALENT)
        known = {self._key(each.mutant, each.tried[-1]): (each.fate.value, each.seen) for each in noticed}
        before = self._current() if whole else self._known
        with suppress(OSError):  # where nothing can be kept, nothing is recalled
            records.write_whole(self.path, json.dumps({**before, **known}, indent=0))
            (self.path.parents[1] / ".gitignore").write_text("*\n", encoding="utf-8")

    def _current(self) -> dict[str, tuple[str, str]]:
        rests = set(self._rests.values())
        return {key: fate for key, fate in self._known.items() if key.partition(" ")[0] in rests}

    def _key(self, mutant: Automatic, falsifier: str) -> str:
        return f"{self._rests.get(falsifier)} {mutant.result}"


def _read(path: Path) -> dict[str, tuple[str, str]]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {key: (Fate(fate).value, str(seen)) for key, (fate, seen) in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _rests(project: Project, contract: Contract, falsifier: Falsifier, clean: Trial) -> str:
    """A digest of the falsifier, its code and what it read, and of what runs them."""
    basis = records.basis(project, contract, falsifier, contract.subject_of(falsifier))
    files = {**records.digests_of(project, clean.files), **basis.files}
    run = contract.run(falsifier.run) if falsifier.run is not None else None
    how = [dict(run.small or {}) if run is not None else None, version("pv-contracts"), platform.python_version()]
    return digest_data([falsifier.id, basis.clause, files, how])

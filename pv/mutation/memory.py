"""Keeps which falsifier killed which automatic mutant, from run to run, while the fingerprint is unchanged."""

import json
import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pv.contract.claims import Falsifier
from pv.contract.model import Contract
from pv.engines.registry import engine_of
from pv.mutation import scope
from pv.mutation.generate import Automatic
from pv.mutation.judge import DETECTED, Judged, MutantStatus
from pv.results import store
from pv.results.trial import Trial
from pv.source.digest import digest_data
from pv.source.project import Project

FOLDER = ".pv_cache"


class Memory:
    """The cache of killed mutants of one contract. A missing or unreadable file is an empty cache."""

    def __init__(self, project: Project, contract: Contract, clean: Mapping[str, Trial]) -> None:
        self.path = project.root / FOLDER / "mutants" / f"{contract.id}.json"
        owners = scope.owners(contract)
        judges = (f for f in scope.judging(contract) if f.id in clean)
        self._rests = {f.id: _rests(project, owners[f.id], f, clean[f.id]) for f in judges}
        self._known = _read(self.path)

    def recalled(self, mutant: Automatic, able: Iterable[Falsifier]) -> Judged | None:
        """Return the cached status of the mutant; None if there is none for a falsifier in `able`."""
        for falsifier in able:
            status = self._known.get(self._key(mutant, falsifier.id))
            if status is not None:
                return Judged(
                    mutant=mutant, status=MutantStatus(status[0]), tried=(falsifier.id,), seen=status[1], recalled=True
                )
        return None

    def keep(self, judged: Iterable[Judged], *, whole: bool) -> None:
        """Write the killed mutants to the cache; after a run of all mutants, drop entries with old fingerprints."""
        killed = (each for each in judged if each.status in DETECTED and each.status is not MutantStatus.NOT_EQUIVALENT)
        known = {self._key(each.mutant, each.tried[-1]): (each.status.value, each.seen) for each in killed}
        before = self._current() if whole else self._known
        with suppress(OSError):  # the cache is optional
            store.write_whole(self.path, json.dumps({**before, **known}, indent=0))
            (self.path.parents[1] / ".gitignore").write_text("*\n", encoding="utf-8")

    def _current(self) -> dict[str, tuple[str, str]]:
        rests = set(self._rests.values())
        return {key: status for key, status in self._known.items() if key.partition(" ")[0] in rests}

    def _key(self, mutant: Automatic, falsifier: str) -> str:
        return f"{self._rests.get(falsifier)} {mutant.result}"


def _read(path: Path) -> dict[str, tuple[str, str]]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {key: (MutantStatus(status).value, str(seen)) for key, (status, seen) in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _rests(project: Project, contract: Contract, falsifier: Falsifier, clean: Trial) -> str:
    """Return the digest of the falsifier, its code, the files it read, and the versions of pv and Python."""
    fingerprint = store.fingerprint(project, contract, falsifier, contract.subject_of(falsifier))
    files = {**store.digests_of(project, clean.files), **fingerprint.files}
    run = engine_of(falsifier).run_of(contract, falsifier)
    circumstances = [
        dict(run.small or {}) if run is not None else None,
        version("pv-contracts"),
        platform.python_version(),
    ]
    return digest_data([falsifier.id, fingerprint.clause, files, circumstances])

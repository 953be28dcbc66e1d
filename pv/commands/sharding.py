"""Divides the claims of a validation into shards, the same on every machine."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pv.contract.model import Contract
from pv.results.outcome import Selection
from pv.results.shard import Shard


def divided(contracts: Iterable[Contract], selections: Mapping[str, Selection], shard: Shard) -> dict[str, Selection]:
    """Return what a shard tries of each contract, by id; a contract of which it tries nothing is left out."""
    parts = {contract.id: _part(contract, selections[contract.id], shard) for contract in contracts}
    return {id_: part for id_, part in parts.items() if part is not None}


def _part(contract: Contract, selection: Selection, shard: Shard) -> Selection | None:
    taken = [claim for claim in contract.claims if selection.takes(claim)]
    mine = frozenset(claim.id for claim in taken if _place(contract.id, claim.run or claim.id, shard.of) == shard.index)
    if not mine and (taken or _place(contract.id, "", shard.of) != shard.index):
        return None
    return replace(selection, falsifiers=mine, divided=True)


def _place(contract: str, name: str, of: int) -> int:
    """Return the shard of a claim, or of all claims that read one run."""
    digest = hashlib.sha256(f"{contract} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % of + 1

"""Attacks on the positions of packed rows, and on the comparison of tokenizers."""

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.chats.tokenizer import Tokenizer
from reference_trainer.errors import SettingError

vocabularies = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), min_size=1)


@dataclass(frozen=True)
class CountingTokenizer(Tokenizer):
    """calls: has an item for each call of `get_vocab`, which takes 71 ms for 49,152 tokens."""

    calls: list[None] = field(default_factory=list)

    def get_vocab(self) -> dict[str, int]:
        self.calls.append(None)
        return super().get_vocab()


@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=3))
def falsify_positions_of_segments(subject: Any, rows: list[list[int]]) -> None:
    found = subject.positions_of(torch.tensor(rows)).tolist()
    for row, positions in zip(rows, found, strict=True):
        wanted: list[int] = []
        before = None
        for segment in row:
            wanted.append(wanted[-1] + 1 if wanted and segment == before else 0)
            before = segment
        assert positions == wanted, f"the segments {row} have the positions {positions}, not {wanted}"


@given(own=vocabularies, change=st.sampled_from(["none", "more", "missing", "moved"]))
def falsify_other_tokenizers_are_refused(subject: Any, own: dict[str, int], change: str) -> None:
    token = min(own, key=lambda each: own[each])
    others = {
        "none": own,
        "more": {**own, "z": 10},
        "missing": {name: number for name, number in own.items() if name != token},
        "moved": {**own, token: 11},
    }
    both = CountingTokenizer(vocabulary=own), CountingTokenizer(vocabulary=others[change])
    try:
        subject.check_tokens(*both)
    except SettingError as error:
        assert change in ("missing", "moved"), f"refused: {error}"
        assert repr(token) in str(error) and str(own[token]) in str(error), str(error)
    else:
        assert change in ("none", "more"), f"accepted, though {token!r} is {change}"
    calls = [len(each.calls) for each in both]
    assert calls == [1, 1], f"the vocabularies of {len(own)} tokens are read {calls} times; expected once each"

"""Attacks on the positions of packed rows, and on the comparison of tokenizers."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from falsifiers.chats.tokenizer import Tokenizer
from reference_trainer.errors import SettingError

vocabularies = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), min_size=1)


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
    try:
        subject.check_tokens(Tokenizer(vocabulary=own), Tokenizer(vocabulary=others[change]))
    except SettingError as error:
        assert change in ("missing", "moved"), f"refused: {error}"
        assert repr(token) in str(error) and str(own[token]) in str(error), str(error)
    else:
        assert change in ("none", "more"), f"accepted, though {token!r} is {change}"

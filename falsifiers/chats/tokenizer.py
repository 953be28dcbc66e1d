"""A tokenizer of characters with a chat template, in the interface of transformers, and conversations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

END, START = 1, 2
ROLES = {"system": 3, "user": 4, "assistant": 5}
TEXT = 10
"""The token of the letter a; others follow."""


@dataclass(frozen=True)
class Tokenizer:
    """begins: with which tokens a conversation begins. strips: all but the last message lose their content."""

    begins: tuple[int, ...] = ()
    strips: bool = False
    eos_token_id: int | None = END
    vocabulary: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [*(self.begins if add_special_tokens else ()), *letters(text)]}

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = False, **_: Any
    ) -> list[int]:
        found = list(self.begins)
        for number, message in enumerate(messages, 1):
            kept = not self.strips or number == len(messages)
            found += [ROLES[message["role"]], *letters(message["content"] if kept else ""), END]
        return [*found, ROLES["assistant"]] if add_generation_prompt else found

    def get_vocab(self) -> dict[str, int]:
        return dict(self.vocabulary)


def letters(text: str) -> list[int]:
    return [TEXT + ord(each) - ord("a") for each in text]


words = st.text("abc", max_size=4)
tokenizers = st.sampled_from([Tokenizer(), Tokenizer(begins=(START,))])


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, str]]:
    """Draw a conversation that ends with an answer; answers may follow each other."""
    roles = draw(st.lists(st.sampled_from(["system", "user", "user", "assistant"]), min_size=1, max_size=5))
    return [{"role": role, "content": draw(words)} for role in [*roles, "assistant"]]


def answered(messages: Sequence[Mapping[str, str]]) -> list[tuple[int, bool]]:
    """Return the tokens of a conversation after its beginning, each with whether an assistant writes it."""
    found: list[tuple[int, bool]] = []
    for message in messages:
        own = message["role"] == "assistant"
        found += [(ROLES[message["role"]], False), *((each, own) for each in letters(message["content"])), (END, own)]
    return found

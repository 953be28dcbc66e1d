"""A tokenizer of characters with chat templates of known spans, in the interface of transformers, and conversations."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import strategies as st

from falsifiers.support.runs import scratch

END = 1
ROLES = {"system": "S", "user": "U", "assistant": "A", "tool": "T"}
SPECIAL = {mark: number for number, mark in enumerate([".", "^", *ROLES.values(), " ", "<", ">"], 1)}
TEXT = 10
"""The token of the letter a; others follow."""
SIZE = 1000

Span = tuple[str, bool]
Messages = list[dict[str, Any]]


@dataclass(frozen=True)
class Tokenizer:
    """A token for each character; those that are no lower-case letters are added tokens.

    A template writes a message as the mark of its role, its content, and a full stop. `spans` is the oracle: it knows
    of each piece of text whether an answer has it.

    begins: tokens with which a conversation begins. strips: a role whose messages lose their content before later
    ones. is_marked: the template marks answers as `{% generation %}` does. thinks: answers after the last question
    have their reasoning. prompt: the prompt for an answer. last: what follows the last message. ends: whether messages
    end with a full stop. system: text of a conversation without a system message. trims: contents lose their spaces
    at both ends. reads: the keys of messages that it writes, beside the content. reads_tools: it writes the names of
    tools. skips: a role that it does not write. drops: a letter up to which answers are not written. closes: every text
    that is no part of another ends with the end of a document.
    """

    begins: tuple[int, ...] = ()
    strips: str = ""
    is_marked: bool = False
    thinks: bool = False
    prompt: str = "A"
    last: str = ""
    ends: bool = True
    system: str = ""
    trims: bool = False
    reads: tuple[str, ...] = ()
    reads_tools: bool = False
    skips: str = ""
    drops: str = ""
    closes: bool = False
    eos_token_id: int | None = END
    vocabulary: Mapping[str, int] = field(default_factory=dict)

    added_tokens_decoder: ClassVar = {number: mark for mark, number in SPECIAL.items()}

    @property
    def chat_template(self) -> str:
        """The text by which a trainer sees whether answers are marked; it reads the option `calm`."""
        return "{%- generation -%} calm" if self.is_marked else "calm"

    def get_chat_template(self, chat_template: None = None, tools: Any = None) -> str:
        return self.chat_template

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        before, after = (self.begins, [END] * self.closes) if add_special_tokens else ((), [])
        return {"input_ids": [*before, *letters(text), *after]}

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(self.convert_ids_to_tokens, tokens))

    def convert_ids_to_tokens(self, token: int) -> str:
        return self.added_tokens_decoder.get(token) or chr((token - TEXT + ord("a")) % SIZE)

    def get_vocab(self) -> dict[str, int]:
        return dict(self.vocabulary)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Any = None,
        add_generation_prompt: bool = False,
        tokenize: bool = True,
        return_assistant_tokens_mask: bool = False,
        calm: bool = False,
        **_: Any,
    ) -> Any:
        pieces = list(self.spans(messages, tools, calm=calm))
        pieces.append((self.prompt, False) if add_generation_prompt else (self.last, True))
        text = "".join(piece for piece, _ in pieces)
        if not tokenize:
            return text
        tokens = [*self.begins, *letters(text)]
        if not return_assistant_tokens_mask:
            return tokens
        mask = [int(is_answer) for piece, is_answer in pieces for _ in piece]
        return {"input_ids": tokens, "assistant_masks": [0] * len(self.begins) + mask}

    def spans(self, messages: Sequence[Mapping[str, Any]], tools: Any = None, *, calm: bool = False) -> Iterator[Span]:
        """Yield the pieces of a conversation after its beginning, each with whether an answer has it."""
        question = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
        if self.reads_tools and tools:
            yield "T" + "".join(tool["name"] for tool in tools), False
        if self.system and messages[0]["role"] != "system":
            yield "S" + self.system + ".", False
        for number, message in enumerate(messages):
            if message["role"] == self.skips:
                continue
            is_answer = message["role"] == "assistant"
            yield ROLES[message["role"]], False
            if is_answer and self.thinks and number > question and not calm:
                yield f"<{message.get('reasoning_content', '')}>", True
            is_kept = message["role"] != self.strips or number == len(messages) - 1
            content = message.get("content", "") if is_kept else ""
            content = content.split(self.drops)[-1] if self.drops and is_answer else content
            yield content.strip() if self.trims else content, is_answer
            yield "".join(json.dumps(message[key]) for key in self.reads if key in message), is_answer
            yield "." if self.ends else "", is_answer


def letters(text: str) -> list[int]:
    return [SPECIAL.get(letter, TEXT + (ord(letter) - ord("a")) % SIZE) for letter in text]


def read_rows(
    subject: Any,
    lines: Sequence[str],
    tokenizer: Tokenizer,
    length: int = 999,
    *,
    keeps_empty: bool = False,
    **options: Any,
) -> Any:
    """Return the chats of a file with these lines, once they are stored; the subject writes and reads them."""
    with scratch() as folder:
        path = folder / "chats.jsonl"
        path.write_text("\n".join(lines) + "\n")
        subject.write_chats(path, subject.ChatWriter(tokenizer, **options), length, folder, keeps_empty=keeps_empty)
        return subject.read_chats(folder)


words = st.text("abc", max_size=4)


@st.composite
def conversations(draw: st.DrawFn) -> Messages:
    """Draw a conversation that ends with an answer; answers may follow each other."""
    roles = draw(st.lists(st.sampled_from(["system", "user", "user", "assistant"]), min_size=1, max_size=5))
    return [{"role": role, "content": draw(words)} for role in [*roles, "assistant"]]

"""Attacks on the tokens of a conversation that are predicted, with templates whose spans are known."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.chats.tokenizer import Tokenizer, conversations, letters
from reference_trainer.errors import DataError

Messages = list[dict[str, Any]]
Expected = list[tuple[list[int], list[bool]]]

templates = st.builds(
    Tokenizer,
    begins=st.sampled_from([(), (2,)]),
    is_marked=st.booleans(),
    thinks=st.booleans(),
    system=st.sampled_from(["", "ab"]),
    trims=st.booleans(),
).flatmap(
    lambda template: st.sampled_from(
        [
            replace(template, **variant)
            for variant in (
                {},
                {"strips": "assistant"},  # earlier answers are written otherwise
                {"prompt": "A<"},  # it begins a thought
                {"prompt": "A<>"},  # it has an empty one
                {"last": "^"},  # a conversation has an end of its own
                {"ends": False},  # only the mark of the next message ends an answer
                {"ends": False, "prompt": "A<"},
                {"ends": False, "last": "^"},
            )
        ]
    )
)
OPTIONS = st.sampled_from([{}, {"calm": True}])


@st.composite
def requests(draw: st.DrawFn) -> Messages:
    """Draw a conversation with thoughts and weights; it begins with a question, or an answer without thoughts."""
    messages: Messages = [dict(each) for each in draw(conversations())]
    for message in messages:
        message["content"] = draw(st.sampled_from(["", " "])) + message["content"]
        if message["role"] == "assistant":
            message |= draw(st.sampled_from([{}, {"reasoning_content": "c"}, {"weight": 0}, {"weight": 1}]))
    return messages if messages[0]["role"] != "assistant" else [{"role": "user", "content": "b"}, *messages]


def _alone(messages: Messages, template: Tokenizer, options: dict[str, Any]) -> tuple[list[int], list[bool]]:
    """Return the tokens up to an answer, the last message, each with whether it is predicted."""
    *before, (text, _) = _answer_joined(messages, template, options)
    own = text + template.last
    # What the prompt for an answer gives of it is not predicted, unless the template marks answers itself.
    given = 0 if template.is_marked else _common(template.prompt[1:], own)
    tokens = [*template.begins, *letters("".join(piece for piece, _ in before)), *letters(own)]
    predicted = messages[-1].get("weight", 1) != 0
    return tokens, [predicted and at >= len(tokens) - len(own) + given for at in range(len(tokens))]


def _common(one: str, other: str) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def _answer_joined(messages: Messages, template: Tokenizer, options: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the pieces of a conversation; those of its last message after the mark of the role are one."""
    pieces = list(template.spans(messages, **options))
    first = max(n for n, (_, own) in enumerate(pieces) if not own) + 1
    return [*pieces[:first], ("".join(piece for piece, _ in pieces[first:]), True)]


def expected(messages: Messages, template: Tokenizer, options: dict[str, Any], turns: str) -> Expected:
    """Return the tokens of each document, each with whether it is predicted."""
    answers = [n for n, each in enumerate(messages) if each["role"] == "assistant"]
    is_open = not (template.ends or template.last or template.is_marked)  # only the next message ends an answer
    documents: Expected = []
    last = 0
    for n in answers[-1:] if turns == "last" else answers:
        tokens, own = _alone(messages[: n + 1], template, options)
        before = documents[-1] if documents else ([], [])
        if documents and tokens[: len(before[0])] == before[0]:
            own[: len(before[1])] = before[1]
            own[len(before[1])] = is_open and before[1][-1] and messages[last + 1]["role"] != "assistant"
            documents[-1] = (tokens, own)
        else:
            documents.append((tokens, own))
        last = n
    if is_open:
        documents = [
            ([*tokens, *letters("U")], [*own, True]) if own[-1] else (tokens, own) for tokens, own in documents
        ]
    return documents


@given(messages=requests(), template=templates, options=OPTIONS, turns=st.sampled_from(["every", "last"]))
def falsify_answers_are_predicted(
    subject: Any, messages: Messages, template: Tokenizer, options: dict[str, Any], turns: str
) -> None:
    if template.strips:  # answers that follow each other have no request
        messages = [each for n, each in enumerate(messages) if n == 0 or messages[n - 1]["role"] != each["role"]]
    writer = subject.ChatWriter(template, turns=turns, options=options)
    documents = subject.encoded(messages, writer)
    found = [(each.tokens.tolist(), [not given for given in each.given.tolist()]) for each in documents]
    wanted = expected(messages, template, options, turns)
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in wanted], (
        f"the tokens are {found}, not those of the template, {wanted}"
    )
    assert found == wanted, f"predicted: {[own for _, own in found]}; the answers are {[own for _, own in wanted]}"
    is_divided = any("are divided" in note for note in writer.notes())
    assert is_divided == (len(wanted) > 1), f"{len(wanted)} documents, and the notes are {writer.notes()}"


@given(content=st.text("abc", max_size=4), template=templates)
def falsify_a_first_answer_has_no_prompt(subject: Any, content: str, template: Tokenizer) -> None:
    """Nothing before its content is predicted, such as the system text of a template."""
    document, *more = subject.encoded(
        [{"role": "assistant", "content": content}], subject.ChatWriter(template, options={"calm": True})
    )
    assert not more, f"{len(more) + 1} documents"
    before = [*template.begins, *letters(("Sab." if template.system else "") + "A")]
    predicted = [not each for each in document.given.tolist()]
    wanted = [at >= len(before) for at in range(len(predicted))]
    assert predicted == wanted, f"predicted: {predicted}; {len(before)} tokens are before the content"


@given(messages=requests(), template=templates, prompt=st.sampled_from(["T", "TA", "Uab"]))
def falsify_answers_without_their_prompt_are_refused(
    subject: Any, messages: Messages, template: Tokenizer, prompt: str
) -> None:
    """Unless the template marks answers."""
    changed = replace(template, prompt=prompt, last="")
    try:
        subject.encoded(messages, subject.ChatWriter(changed))
    except DataError as error:
        assert not template.is_marked and "does not begin message" in str(error), str(error)
    else:
        assert template.is_marked, f"accepted, though the prompt for an answer is {prompt!r}"


@given(messages=requests())
def falsify_rewritten_questions_are_refused(subject: Any, messages: Messages) -> None:
    """Where the question before an answer loses its content, an answer has another context than its request."""
    answers = [n for n, each in enumerate(messages) if each["role"] == "assistant"]
    lost = [n for n in answers if messages[n - 1]["role"] == "user" and messages[n - 1]["content"]]
    try:
        subject.encoded(messages, subject.ChatWriter(Tokenizer(strips="user")))
    except DataError as error:
        assert lost and f"message {lost[0] + 1}, an answer" in str(error), str(error)
    else:
        assert not lost, f"accepted, though the template loses the question before the messages {lost}"

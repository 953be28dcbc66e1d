"""Attacks on the tokens of a conversation that are predicted."""

from typing import Any

from hypothesis import given

from falsifiers.chats.tokenizer import Tokenizer, answered, conversations, tokenizers
from reference_trainer.errors import DataError


@given(messages=conversations(), tokenizer=tokenizers)
def falsify_answers_are_predicted(subject: Any, messages: list[dict[str, str]], tokenizer: Tokenizer) -> None:
    document = subject.encoded(messages, tokenizer)
    begins = len(tokenizer.begins)
    first_is_answer = messages[0]["role"] == "assistant"
    expected = [*((each, first_is_answer) for each in tokenizer.begins), *answered(messages)]
    assert document.tokens.tolist() == [token for token, _ in expected], "the tokens are not those of the template"
    predicted = [not each for each in document.given.tolist()]
    header = begins + 1 if first_is_answer else 0  # there is no prompt that a first answer could follow
    wanted = [own for _, own in expected]
    assert predicted[header:] == wanted[header:], f"predicted: {predicted}; the answers are {wanted}"


@given(messages=conversations())
def falsify_rewriting_templates_are_refused(subject: Any, messages: list[dict[str, str]]) -> None:
    answers = [n for n, each in enumerate(messages, 1) if each["role"] == "assistant"]
    contents = [each["content"] for each in messages]
    lost = [n for n in answers if n > 1 and (contents[n - 2] or any(contents[m - 1] for m in answers if m < n))]
    try:
        subject.encoded(messages, Tokenizer(strips=True))
    except DataError as error:
        assert "message" in str(error), str(error)
        assert lost, f"refused, though no earlier content is lost: {error}"
    else:
        assert not lost, f"accepted, though the template loses the content before the messages {lost}"

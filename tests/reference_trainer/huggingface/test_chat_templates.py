"""Templates with the constructs of those in the table of docs/trainer-data.md, and what is predicted with each."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from reference_trainer import DataError, Lines, SettingError, TrainerError, distill
from reference_trainer.huggingface.chats import ChatWriter, encode_chat
from reference_trainer.huggingface.models import load_tokenizer
from tests.reference_trainer.commands import command
from tests.reference_trainer.huggingface import small_models
from tests.reference_trainer.huggingface.small_models import settings

CHATML = (
    "{% if messages[0].role != 'system' %}<|system|>Help.<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
THINKING = """{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}
{%- set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}<|{{ m.role }}|>
{%- if m.role == 'assistant' and loop.index0 > ns.last %}<think>{{ m.reasoning_content }}</think>{% endif %}
{{- m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"""
PROMPT = """{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|><think>{% endif %}"""
TRAILER = """{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% else %}<|stop|>{% endif %}"""
RETURN = """{% for m in messages %}<|{{ m.role }}|>{{ m.content }}
{%- if loop.last and not add_generation_prompt %}<|stop|>{% else %}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
NEXT = """{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for call in m.tool_calls or [] %}
{{- call.function.name }}{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
MARKED = """{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>
{%- endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}{% endfor %}"""
TRIMMED = """{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
TOOLS = """{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}{% for m in messages %}<|{{ m.role }}|>
{{- m.content }}{% for call in m.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }})
{%- endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""

TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "reasoning_content": "x"}]
TWO = [*TALK, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "reasoning_content": "y"}]
SPACED = [{"role": "user", "content": " a"}, {"role": "assistant", "content": " b "}]
CALL = {"id": "7", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
CALLED = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "b", "tool_call_id": "7"},
    {"role": "assistant", "content": "c"},
]
FIRST = [{"role": "assistant", "content": "hi"}, *TALK]
DEFINITIONS = [{"function": {"name": "f"}}]
A, U, E = "<|assistant|>", "<|user|>", "<|end|>"


@pytest.fixture(scope="module")
def words() -> Any:
    tokenizer = small_models.tokenizer("a b c d")
    tokenizer.add_special_tokens(
        {"extra_special_tokens": ["<|system|>", "<|tool|>", "<|stop|>", "<think>", "</think>"]}
    )
    return tokenizer


def spans(words: Any, template: str, messages: Any, tools: Any = None, **options: Any) -> tuple[list[str], list[str]]:
    """Return the text of each document, predicted parts in brackets, and the notes."""
    words.chat_template = template
    writer = ChatWriter(words, **options)
    texts = []
    for document in encode_chat(messages, writer, tools=tools):
        text, was_given = "", True
        assert document.given is not None
        for token, is_given in zip(document.tokens.tolist(), document.given.tolist(), strict=True):
            text += ("" if is_given == was_given else "]" if is_given else "[") + words.decode([token])
            was_given = is_given
        texts.append(text + ("" if was_given else "]"))
    return texts, writer.notes()


CASES: dict[str, tuple[str, Any, Any, list[str], list[str]]] = {
    "default system text": (
        *(CHATML, TWO, None, [f"<|system|>Help.{E}{U}a{E}{A}[b{E}]{U}c{E}{A}[d{E}]"]),
        ["'reasoning_content', which the chat template does not write (2)"],
    ),
    "first answer after system text": (
        *(CHATML, FIRST[:2], None, [f"<|system|>Help.{E}{A}[hi{E}]"]),
        ["messages after the last answer are left out (1)"],
    ),
    "thoughts of earlier turns removed": (
        *(THINKING, TWO, None),
        [f"{U}a{E}{A}[<think>x</think>b{E}]", f"{U}a{E}{A}b{E}{U}c{E}{A}[<think>y</think>d{E}]"],
        ["conversations are divided into several documents"],
    ),
    "prompt with a thought": (
        *(PROMPT, TWO, None, [f"{U}a{E}{A}[b{E}]{U}c{E}{A}[d{E}]"]),
        ["do not begin with '<think>'", "'reasoning_content', which the chat template does not write (2)"],
    ),
    "thought in the content removed": (
        *(PROMPT, [TALK[0], {"role": "assistant", "content": "<think>x</think>b"}], None, [f"{U}a{E}{A}[b{E}]"]),
        ["do not begin with '<think>'", "answers are not written whole by the chat template"],
    ),
    "end of the conversation": (
        *(TRAILER, TWO, None, [f"{U}a{E}{A}[b{E}<|stop|>]", f"{U}a{E}{A}b{E}{U}c{E}{A}[d{E}<|stop|>]"]),
        ["'reasoning_content'", "are divided"],
    ),
    "another end of the last turn": (
        *(RETURN, TWO, None, [f"{U}a{E}{A}[b<|stop|>]", f"{U}a{E}{A}b{E}{U}c{E}{A}[d<|stop|>]"]),
        ["'reasoning_content'", "are divided"],
    ),
    "ended by the next role": (
        *(NEXT, CALLED, None, [f"{U}a{A}[f<|tool|>]b{A}[c{U}]"]),
        ["'tool_calls.id'", "'tool_calls.function.arguments'", "'tool_call_id'", "by '<|tool|>'", "by '<|user|>'"],
    ),
    "ended by the next role after a call": (
        *(NEXT, CALLED[:2], None, [f"{U}a{A}[f]"]),
        ["'tool_calls.id'", "'tool_calls.function.arguments'", "answers are predicted without an end"],
    ),
    "marked answers": (
        *(MARKED, TWO, None, [f"{U}a{E}{A}[b{E}]{U}c{E}{A}[d{E}]"]),
        ["'reasoning_content'"],
    ),
    "trimmed contents": (TRIMMED, SPACED, None, [f"{U}a{E}{A}[b{E}]"], []),
    "calls and tools": (
        *(TOOLS, CALLED, DEFINITIONS),
        [f'<|system|>[{{"function": {{"name": "f"}}}}]{E}{U}a{E}{A}[f({{"x": 1}}){E}]<|tool|>b{E}{A}[c{E}]'],
        ["'tool_calls.id'", "'tool_call_id'"],
    ),
    "calls and tools that are not written": (
        *(CHATML, CALLED, DEFINITIONS, [f"<|system|>Help.{E}{U}a{E}{A}[{E}]<|tool|>b{E}{A}[c{E}]"]),
        ["'tool_calls', which", "rows have 'tools', which", "'tool_call_id'"],
    ),
    "quoted arguments": (
        *(
            TOOLS,
            [
                TALK[0],
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            ],
        ),
        *(None, [f'{U}a{E}{A}[f("{{}}"){E}]']),
        ["arguments are JSON text, which the chat template writes as a quoted string"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_predicted_text_of_each_construct_is_exact(words: Any, case: str) -> None:
    template, messages, tools, expected, says = CASES[case]
    texts, notes = spans(words, template, messages, tools)
    assert texts == expected
    assert len(notes) == len(says) and all(any(phrase in note for note in notes) for phrase in says), notes


def test_last_turn_options_and_weights_choose_what_is_predicted(words: Any) -> None:
    text = f"{U}a{E}{A}b{E}{U}c{E}{A}"
    assert spans(words, THINKING, TWO, turns="last")[0] == [f"{text}[<think>y</think>d{E}]"]
    quiet = [{name: message[name] for name in ("role", "content")} for message in TWO]
    calm = spans(words, THINKING, quiet, options={"enable_thinking": False}, turns="last")
    assert calm == ([f"{text}<think></think>[d{E}]"], [])
    weighted = [TWO[0], {**quiet[1], "weight": 0}, TWO[2], {**quiet[3], "weight": 1}]
    texts, notes = spans(words, TRIMMED, weighted)
    assert texts == [f"{text}[d{E}]"] and notes == ["answers have the weight 0, and are not predicted (1)"]
    assert spans(words, TRIMMED, TWO, options={"enable_thinkin": True})[1][-1].endswith("option 'enable_thinkin'")


def test_answer_after_an_answer_begins_with_its_content(words: Any) -> None:
    """The prompt for it would have the first one as the last turn, with its thought."""
    template = THINKING.replace("loop.index0 > ns.last", "loop.last")
    texts, _ = spans(words, template, [TALK[0], TALK[1], {"role": "assistant", "content": "d"}])
    assert texts == [f"{U}a{E}{A}[<think>x</think>b{E}]", f"{U}a{E}{A}b{E}{A}<think></think>[d{E}]"]


def test_templates_without_a_place_for_answers_are_refused(words: Any) -> None:
    other = CHATML.replace("<|assistant|>", "<|tool|>")
    with pytest.raises(
        DataError, match="does not begin message 2, an answer, with the prompt for it; use a template that marks"
    ):
        spans(words, other, TWO)
    with pytest.raises(DataError, match="the tokenizer has no chat template; use --chat-template FILE"):
        spans(words, "", TWO)


def test_template_of_a_run_is_in_its_exports_and_conversations_stay_whole(place: Path, tmp_path: Path) -> None:
    (tmp_path / "template.jinja").write_text(THINKING)
    rows: list[Any] = [{"messages": TWO if n % 2 else TALK, "source": "s"} for n in range(11)]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options: dict[str, Any] = {"data": tmp_path / "chats.jsonl", "chat_template": tmp_path / "template.jinja"}
    options |= {"max_steps": 1, "save_every": 1, "data_cache": tmp_path / "cache"}
    for lines in (io.StringIO(), io.StringIO()):  # the notes come with the tokens, also when they are read
        distill(settings(place, tmp_path / "out", force=True, rewind=True, **options), lines=Lines(lines))
        assert "data: rows have 'source', which has no effect (11)\n" in lines.getvalue()
        assert "data: conversations are divided into several documents" in lines.getvalue()
    with pytest.raises(TrainerError, match=r"template_options was null and is .*enable_thinking"):
        resumed = {"template_options": '{"enable_thinking": false}', "resume": Path("latest"), "force": True}
        distill(settings(place, tmp_path / "out", **options | resumed))
    # Of 16 documents, 14 would be trained on; the last two conversations have three.
    tokenizer = load_tokenizer(tmp_path / "out")
    kept = [document for row in rows[9:] for document in encode_chat(row["messages"], ChatWriter(tokenizer))]
    held_back = json.loads((tmp_path / "out/manifest.json").read_text())["held_back"]["hard_loss"]
    assert len(kept) == 3 and held_back["count"] == sum(
        int((~document.given).sum()) for document in kept if document.given is not None
    )
    ended = command("evaluate", str(tmp_path / "out"), "--json", "--device", "cpu")
    assert json.loads(ended.output)["models"][0]["sums"]["hard_loss"]["count"] == held_back["count"]
    command("checkpoints", str(tmp_path / "out"), "--export", "latest", str(tmp_path / "exported"))
    assert load_tokenizer(tmp_path / "exported").chat_template == tokenizer.chat_template == THINKING


def test_template_file_that_cannot_be_read_is_named(place: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"cannot read the chat template .*/no\.jinja: No such file"):
        distill(settings(place, tmp_path / "out", chat_template=tmp_path / "no.jinja"))

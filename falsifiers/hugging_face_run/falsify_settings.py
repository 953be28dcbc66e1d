"""Attacks on how settings decide about data and models of a run: cached tokens, digests, rows, and created models."""

import io
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import example, given
from hypothesis import strategies as st

import reference_trainer
from falsifiers.support.assertions import assert_equal, refusal
from falsifiers.support.causal import (
    FIRST_NUMBER,
    TEMPLATE,
    VOCABULARY,
    conversations,
    random_llama,
    word_tokenizer,
    write_causal,
)
from falsifiers.support.runs import scratch
from reference_trainer.errors import DataError, SettingError
from reference_trainer.huggingface.models import load_tokenizer
from reference_trainer.pipeline.evaluations import eval_config
from reference_trainer.pipeline.planning import plan

BASE: dict[str, Any] = {"length": 40, "documents": "pad", "skip_invalid_rows": True, "data_workers": 0, "eval_rows": 2}
CHANGES: Mapping[str, dict[str, Any]] = {
    "nothing": {},
    "length": {"length": 12},
    "turns": {"turns": "last"},
    "options": {"template_options": '{"brief": true}'},
    "another value of options": {"template_options": '{"brief": "first"}'},
    "template": {"chat_template": "other.jinja"},
    "invalid rows": {"skip_invalid_rows": False},
    "mix": {"mix": "other.jsonl"},
    "mix of another length": {"mix": "other.jsonl", "length": 12},
    "pairs": {"cross_tokenizer": True},
    "pairs of another length": {"cross_tokenizer": True, "length": 12},
    "pairs of another template": {"cross_tokenizer": True, "teacher": "other-template"},
    "pairs of another template of the student": {"cross_tokenizer": True, "chat_template": "other.jinja"},
    "completions": {"data": "completions.jsonl", "student": "special"},
    "completions with another end token": {"data": "completions.jsonl", "student": "other-end"},
}
"""By case: changed settings. No two cases have the same tokens and labels; some data are refused."""
BRIEF = TEMPLATE.replace(
    "{{ m['content'] }}",
    "{{ m['content'].split()[0 if brief == 'first' else -1] if brief else m['content'] }}",
)


@contextmanager
def place() -> Iterator[Path]:
    """Yield a directory with models and conversations: one is invalid, and one has no answer within the row length."""
    with scratch() as directory:
        words = word_tokenizer()
        words.chat_template = BRIEF
        for name in ("teacher", "student"):
            write_causal(directory / name, words, 16, torch.float32)
            words.save_pretrained(directory / name)
        too_long = [{"role": "user", "content": "w1 " * BASE["length"]}, {"role": "assistant", "content": "w2"}]
        rows = [*map(json.dumps, [{"messages": too_long}, *conversations(0)]), '{"messages": 3}']
        (directory / "chats.jsonl").write_text("\n".join(rows))
        (directory / "other.jsonl").write_text("\n".join(rows[::-1]))
        completions = [{"prompt": f"w{n}", "completion": f"w{n + 1} w{n + 2}"} for n in range(20)]
        (directory / "completions.jsonl").write_text("\n".join(map(json.dumps, completions)))
        # Two tokenizers with equal tokens and different end tokens.
        for name, end in (("special", "<end>"), ("other-end", "w9")):
            shutil.copytree(directory / "student", directory / name)
            special = load_tokenizer(directory / "student")
            special.add_special_tokens({"additional_special_tokens": ["<end>", "w9"]})
            special.eos_token = end
            special.save_pretrained(directory / name)
        (directory / "other.jinja").write_text(TEMPLATE.replace(" <end>", " w0 <end>"))
        # Tokenizers of other teachers: with another template, with two exchanged token ids, and with a normalizer that
        # replaces a word.
        words.chat_template = TEMPLATE.replace(" <end>", " w0 <end>")
        for name in ("other-template", "swapped", "renamed"):
            words.save_pretrained(directory / name)
            file = directory / name / "tokenizer.json"
            content = json.loads(file.read_text())
            token_ids = content["model"]["vocab"]
            if name == "swapped":
                token_ids["w1"], token_ids["w2"] = token_ids["w2"], token_ids["w1"]
            if name == "renamed":
                content["normalizer"] = {"type": "Replace", "pattern": {"String": "w3"}, "content": "w4"}
            file.write_text(json.dumps(content))
        yield directory


def data_of_run(subject: Any, directory: Path, cache: str, **changes: Any) -> tuple[Any, Any, Any, str]:
    """Return training batches, held-back batches, digests, and digest of the evaluation of a run.

    A batch is a tuple of tokens, labels, and tokens and groups of a teacher with another tokenizer. If the data are
    refused, return the error message and empty values.
    """
    with new_run(subject, directory, cache, **changes) as run:
        try:
            batches = run.make_batches()
        except DataError as error:
            return str(error), [], {}, ""
        trained = [batches.batch(1, at) for at in range(1, batches.batches + 1)]
        order = torch.arange(len(run.held_back))
        evaluated = [run.held_back.batch(order, at) for at in range(1, run.held_back.batches + 1)]
        pairs = run.pairs
        teacher_rows = [
            [
                []
                if pairs is None or b.examples is None
                else [(pairs[n].teacher_tokens.tolist(), pairs[n].groups.tolist()) for n in b.examples.tolist()]
                for b in part
            ]
            for part in (trained, evaluated)
        ]
        data = [
            [(b.tokens.tolist(), b.labels.tolist(), rows) for b, rows in zip(part, others, strict=True)]
            for part, others in zip((trained, evaluated), teacher_rows, strict=True)
        ]
        return data[0], data[1], dict(run.digests), eval_config(run, whole=False, teacher=None).digest


@contextmanager
def new_run(subject: Any, directory: Path, cache: str, **changes: Any) -> Iterator[Any]:
    """Yield a run, before it has created data or models."""
    paths = {"teacher": "teacher", "student": "student", "data": "chats.jsonl", "out": "out", "data_cache": cache}
    options = {**BASE, **paths, **changes}
    files = [*paths, "chat_template", "eval_data", "init_from"]
    options |= {name: directory / options[name] for name in files if options.get(name) is not None}
    if "mix" in options:
        weight = options.pop("mix_weight", 2)
        options["mix"] = json.dumps({str(directory / name): weight for name in options["mix"].split()})
    settings = reference_trainer.Settings(**options, device="cpu")
    with subject.HuggingFace(settings, lines=reference_trainer.Lines(io.StringIO()), environment={}) as run:
        run.device = torch.device("cpu")
        yield run


def falsify_kept_tokens_are_those_of_the_settings(subject: Any) -> None:
    """All runs share one token cache; every run must have the data that it has with a cache of its own."""
    with place() as directory:
        shared = {name: data_of_run(subject, directory, "shared", **change) for name, change in CHANGES.items()}
        for name, change in CHANGES.items():
            alone = data_of_run(subject, directory, f"alone {name}", **change)
            for part, seen, expected in zip(("training", "held-back"), shared[name], alone, strict=False):
                assert seen == expected, f"{part} data with {change}: {seen}; expected {expected}"
    for one, other in combinations(CHANGES, 2):
        assert shared[one][0] != shared[other][0], (
            f"{one} and {other} have the same data: one run used the cache entry of the other, or nothing was tried"
        )
    teacher_tokens, with_template = (
        [tokens for _, _, pairs in shared[name][0] for tokens, _ in pairs]
        for name in ("pairs", "pairs of another template of the student")
    )
    assert teacher_tokens, "the teacher reads no conversation, so nothing was tried"
    assert_equal("tokens of the teacher with a chat_template of the student", with_template, teacher_tokens)


DATA_CHOICES: list[dict[str, Any]] = [
    *({"eval_rows": rows} for rows in (0, 1, 2, 3)),
    *({"eval_data": "other.jsonl", "eval_rows": rows} for rows in (0, 1, 2)),
    {"eval_data": "short.jsonl"},
    {"data": "other.jsonl"},
    {"mix": "other.jsonl"},
    {"mix": "other.jsonl", "mix_weight": 3},
    {"mix": "short.jsonl"},
    *({"mix": f"{first} other.jsonl"} for first in ("short.jsonl", "completions.jsonl")),
    *({"cross_tokenizer": True, "teacher": teacher} for teacher in ("teacher", "other-template", "swapped", "renamed")),
]
"""Settings. Any two differ in the rows to train on, in the rows to evaluate, or in the rows of the teacher."""
DATA_ALONE: dict[str, Any] = {"mix": "chats.jsonl", "mix_weight": 3}
"""A mixture whose only file is the data of the run."""
EVAL_ROWS = 25
"""Number of evaluated conversations; the file has fewer than twice as many."""


def falsify_runs_with_other_data_have_other_digests(subject: Any) -> None:
    """Digests show that a file or a tokenizer has changed since an earlier attempt of a run."""
    with place() as directory:
        (directory / "short.jsonl").write_text("\n".join(map(json.dumps, conversations(0)[:30])))
        runs = [data_of_run(subject, directory, "cache", **case) for case in DATA_CHOICES]
        repeated = [data_of_run(subject, directory, "cache", **DATA_CHOICES[number]) for number in (6, -1)]
        all_rows, chosen_rows = (
            data_of_run(subject, directory, "cache", eval_data="other.jsonl", eval_rows=rows, batch_size=1)[1]
            for rows in (0, EVAL_ROWS)
        )
        # A mixture that names the path of the data gives it a weight, and adds no rows.
        plain, mixed = (data_of_run(subject, directory, "cache", batch_size=1, **mix) for mix in ({}, DATA_ALONE))
    for part, seen, expected in zip(("trained", "held-back"), mixed, plain, strict=False):
        seen, expected = sorted(map(str, seen)), sorted(map(str, expected))
        assert_equal(f"{part} rows of a mixture of the data alone", seen, expected)
    count = len(all_rows)
    assert EVAL_ROWS < count < 2 * EVAL_ROWS, f"{EVAL_ROWS} of {count} rows are evaluated, so nothing was tried"
    expected = [number * count // EVAL_ROWS for number in range(EVAL_ROWS)]
    seen = [all_rows.index(row) if row in all_rows else None for row in chosen_rows]
    assert_equal(f"indices of {EVAL_ROWS} of {count} conversations, evenly chosen", seen, expected)
    for seen, expected in zip(repeated, (runs[6], runs[-1]), strict=True):
        assert_equal("digests of a repeated run", seen[2], expected[2])
    for one, other in combinations(range(len(DATA_CHOICES)), 2):
        case = f"{DATA_CHOICES[one]} and {DATA_CHOICES[other]}"
        assert runs[one][:2] != runs[other][:2], f"{case} have the same rows"
        assert runs[one][2] != runs[other][2], f"{case} have the same digests {runs[one][2]}"
        is_distinct = runs[one][1] == runs[other][1] or runs[one][3] != runs[other][3]
        assert is_distinct, f"{case} have different held-back rows, but one digest {runs[one][3]} of the evaluation"


SPLIT_TEMPLATE = TEMPLATE.replace(" <end>", "{% if m['role'] == 'assistant' and not loop.last %} w0{% endif %} <end>")
"""A template that renders earlier answers differently from the last one, so each answer needs a separate document."""


def falsify_no_conversation_is_trained_on_and_held_back(subject: Any) -> None:
    """Every document of a conversation contains its first turn, which has the number of the conversation."""

    def numbers(batches: Any) -> set[int]:
        return {number for tokens, _, _ in batches for row in tokens for number in row if number >= FIRST_NUMBER}

    splits = 0  # runs in which the first 90 % of the documents end within a conversation
    with place() as directory:
        (directory / "divided.jinja").write_text(SPLIT_TEMPLATE)
        for count in range(12, 20):
            chats = conversations(0)[:count]
            (directory / "part.jsonl").write_text("\n".join(map(json.dumps, chats)))
            trained, held_back = map(
                numbers,
                data_of_run(subject, directory, "cache", data="part.jsonl", chat_template="divided.jinja", eval_rows=0)[
                    :2
                ],
            )
            case = f"{count} conversations"
            assert_equal(f"{case}: conversations both trained on and held back", sorted(trained & held_back), [])
            assert_equal(f"{case}: number of conversations in the rows", len(trained | held_back), count)
            conversation_of = [number for number, chat in enumerate(chats) for _ in chat["messages"][1::2]]
            end = len(conversation_of) * 9 // 10
            splits += conversation_of[end - 1] == conversation_of[end]
    assert splits, "the held-back documents never begin within a conversation, so nothing was tried"


def _wide(directory: Path) -> None:
    """Write a teacher with more logits than tokens, and one whose tokenizer lacks a token."""
    random_llama(len(VOCABULARY) + 5, 16).save_pretrained(directory / "wide")
    load_tokenizer(directory / "student").save_pretrained(directory / "wide")
    shutil.copytree(directory / "teacher", directory / "fewer")
    file = directory / "fewer" / "tokenizer.json"
    content = json.loads(file.read_text())
    del content["model"]["vocab"]["w1"]
    file.write_text(json.dumps(content))


CROSS = {"cross_tokenizer": True}
COMBINATIONS: Mapping[str, tuple[dict[str, Any], str]] = {
    "another tokenizer": (
        {"teacher": "swapped"},
        "differ in 2 tokens: 'w1' is 4 for the student and 5 for the teacher",
    ),
    "a tokenizer that lacks a token": ({"teacher": "fewer"}, "differ in 1 token"),
    "another tokenizer of a served teacher": (
        {"teacher": "swapped", "teacher_url": "http://127.0.0.1:9"},
        "differ in 2 tokens: 'w1'",
    ),
    "another tokenizer of initial weights": ({"init_from": "swapped"}, "differ in 2 tokens: 'w1'"),
    "more logits": ({"teacher": "wide"}, "--share-vocabulary"),
    "more logits, shared": ({"teacher": "wide", "share_vocabulary": "truncate"}, ""),
    "another tokenizer, more logits": ({"teacher": "wide", **CROSS}, ""),
    "an adapter without weights": ({"student": "new", "lora": 2}, "--lora needs a trained student"),
    "a new student": ({"student": "new"}, ""),
    "bfloat16 weights in a float32 run": ({"weights": "bfloat16"}, "--weights bfloat16 needs --dtype bfloat16"),
    "bfloat16": ({"weights": "bfloat16", "dtype": "bfloat16"}, ""),
    "a sharded quantized teacher": ({"quantization": "{}", "shard_teacher": True}, "quantiz"),
    "no teacher": ({"teacher": None}, "--student needs --teacher"),
    "no data": ({"data": None}, "--student needs --data"),
    "another tokenizer, shared": ({**CROSS, "share_vocabulary": "pad"}, "needs no share_vocabulary"),
    "another tokenizer, on-policy": ({**CROSS, "on_policy": 0.5}, "needs on_policy 0"),
    "another tokenizer, on-policy at the end": ({**CROSS, "on_policy_end": 0.5}, "needs on_policy 0"),
    "another tokenizer, packed": ({**CROSS, "documents": "pack"}, "needs padded rows"),
    "another tokenizer, features": ({**CROSS, "feature_weight": 0.5}, "needs feature_weight 0"),
    "another tokenizer, features at the end": ({**CROSS, "feature_weight_end": 0.5}, "needs feature_weight 0"),
    "another tokenizer, stored": ({**CROSS, "teacher_outputs": "stored"}, "needs no teacher_outputs"),
    "another tokenizer, served": ({**CROSS, "teacher_url": "http://127.0.0.1:9"}, "needs no teacher_url"),
    "another tokenizer, no teacher": ({**CROSS, "teacher": None}, "needs a teacher"),
}
"""By case: settings, and words of the refusal; empty if they are accepted."""


def falsify_models_that_do_not_fit_are_refused(subject: Any) -> None:
    with place() as directory:
        _wide(directory)
        load_tokenizer(directory / "student").save_pretrained(directory / "new")
        shutil.copy(directory / "student" / "config.json", directory / "new")
        for kind, (change, words) in COMBINATIONS.items():

            def create_models(change: dict[str, Any] = change) -> None:
                with new_run(subject, directory, "cache", **change) as run:
                    run.join()
                    run.make_batches()
                    if "teacher_url" in change:
                        return  # no server runs at this address
                    run.student = run.make_student()
                    run.make_teacher()
                    if "init_from" in change:
                        run.recipe.export.load(directory / change["init_from"])

            message = refusal(create_models, SettingError)
            is_expected = words in message and bool(message) == bool(words)
            assert is_expected, f"{kind}: the refusal is {message!r}; expected {words!r}"
        # A token beyond the vocabulary is refused in every file: of the data, of the mixture, and of the evaluation.
        tokenizer = load_tokenizer(directory / "student")
        tokenizer.add_tokens(["beyond"])
        tokenizer.save_pretrained(directory / "student")
        tokenizer.save_pretrained(directory / "teacher")
        chat = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "beyond w2"}]
        (directory / "beyond.jsonl").write_text("\n".join([json.dumps({"messages": chat})] * 20))
        roles = ("data", "mix", "eval_data")
        for role in (*roles, None):
            files = {name: "beyond.jsonl" if name == role else "other.jsonl" for name in roles}
            with new_run(subject, directory, "cache", **files) as run:
                run.make_batches()
                message = refusal(run.make_student, DataError)
            words = "" if role is None else f"token {len(VOCABULARY)}"
            is_expected = words in message and bool(message) == bool(words)
            assert is_expected, f"a token beyond the vocabulary in {role}: {message!r}; expected {words!r}"


@given(
    dtype=st.sampled_from(["float32", "float64", "bfloat16"]),
    few=st.booleans(),
    lora=st.booleans(),
    recomputed=st.booleans(),
    compiled=st.booleans(),
    packed=st.booleans(),
)
@example(dtype="float64", few=False, lora=False, recomputed=True, compiled=True, packed=True)
@example(dtype="bfloat16", few=True, lora=True, recomputed=False, compiled=False, packed=False)
def falsify_models_are_made_as_the_settings_say(
    subject: Any, dtype: str, few: bool, lora: bool, recomputed: bool, compiled: bool, packed: bool
) -> None:
    """The files of the teacher and of initial weights are in bfloat16.

    few: whether weights are in bfloat16, in a run with dtype bfloat16. recomputed: activation checkpointing.
    """
    few = few and dtype == "bfloat16"
    options: dict[str, Any] = {"dtype": dtype, "checkpoint_activations": recomputed, "compile": compiled}
    options |= {"documents": "pack" if packed else "pad", "weights": "bfloat16" if few else "float32"}
    options |= {"lora": 2} if lora else {}
    weights = torch.float64 if dtype == "float64" else torch.bfloat16 if few else torch.float32
    with place() as directory:
        write_causal(directory / "teacher", load_tokenizer(directory / "teacher"), 16, torch.bfloat16)
        compiling = mock.patch.object(subject, "compile_layers")
        with compiling as compile_layers, new_run(subject, directory, "cache", **options) as run:
            run.join()
            run.make_batches()
            shapes = {"student": run.recipe.student.shapes(), "teacher": run.recipe.teacher.shapes()}
            run.student = run.make_student()
            modules = {"student": run.student, "teacher": run.make_teacher()}
            initial = {} if lora else run.recipe.export.load(directory / "teacher")
            with_8_bits = run.settings.replace(quantization='{"quant_method": "bitsandbytes", "load_in_8bit": true}')
            planned_run = plan(with_8_bits, ranks=2)
            quantized = ['{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"a": 2, "b": 1}']
            digests = [run.recipe.teacher.digest_of_files()]
            for text in quantized:
                run.settings = run.settings.replace(quantization=text)
                digests.append(run.recipe.teacher.digest_of_files())
    case = f"with {options}"
    for whose, module in modules.items():
        seen, planned = (
            {name: (p.shape, p.dtype, p.requires_grad) for name, p in model.named_parameters()}
            for model in (module, shapes[whose])
        )
        wrong = [f"{name}: {planned.get(name)}" for name in seen if planned.get(name) != seen[name]]
        assert not wrong and len(planned) == len(seen), f"{case}: the planned {whose} differs in {wrong[:2]}"
        has_adapter = lora and whose == "student"  # whose dtype is at least float32
        kinds = {dtype for _, dtype, trained in seen.values() if not (has_adapter and trained)}
        assert_equal(f"{case}: dtypes of the {whose}", kinds, {weights if whose == "student" else torch.bfloat16})
        kinds = {dtype for _, dtype, trained in seen.values() if has_adapter and trained}
        expected = {torch.promote_types(weights, torch.float32)} if has_adapter else set()
        assert_equal(f"{case}: dtypes of the adapter of the {whose}", kinds, expected)
        attention = module.model.config._attn_implementation
        assert attention.startswith("by_document") == packed, f"{case}: attention of {whose}: {attention}"
    assert_equal(f"{case}: dtypes of `init_from`", {t.dtype for t in initial.values()}, set() if lora else {weights})
    evaluated = [name for name, part in run.student.named_modules() if not part.training]
    assert not evaluated, f"{case}: modules of the student in eval mode: {evaluated[:3]}"
    recomputes = any(getattr(module, "gradient_checkpointing", False) for module in run.student.modules())
    assert_equal(f"{case}: recomputes activations", recomputes, recomputed)
    small = sum(p.numel() for name, p in modules["teacher"].named_parameters() if name.endswith("proj.weight"))
    size = sum(p.nbytes for p in modules["teacher"].parameters()) - small  # 8 bits: one of two bytes
    trained = sum(parameter.nbytes for parameter in run.student.parameters() if parameter.requires_grad)
    buffers = planned_run.memory["gradients"], planned_run.memory["buffers of DDP"]
    assert_equal(f"{case}: planned bytes of gradients, and of buffers of DDP", buffers, (trained, trained))
    # Only the projections of the layers are quantized.
    assert_equal(f"{case}: planned bytes of a teacher with 8 bits", planned_run.memory["teacher"], size)
    names = [call.args[0] for call in compile_layers.call_args_list]
    assert_equal(f"{case}: compiled models", names, ["the student", "the teacher"] * compiled)
    assert digests[1] == digests[2], f"the digest of a quantized teacher depends on the order of {quantized[:2]}"
    assert len({*digests}) == 3, f"digests without and with quantization by {quantized}: {digests}"

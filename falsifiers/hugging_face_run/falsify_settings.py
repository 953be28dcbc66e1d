"""Attacks on data of a run that settings decide: tokens that are kept for other runs, and rows that are evaluated."""

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

USUAL: dict[str, Any] = {"length": 40, "documents": "pad", "skip_invalid_rows": True, "data_workers": 0, "eval_rows": 2}
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
    "pairs of another template": {"cross_tokenizer": True, "teacher": "worded"},
    "pairs of another template of the student": {"cross_tokenizer": True, "chat_template": "other.jinja"},
    "completions": {"data": "completions.jsonl", "student": "special"},
    "completions with another end": {"data": "completions.jsonl", "student": "ended"},
}
"""Settings with which the data of the falsifier have other tokens or labels, or are refused."""
BRIEF = TEMPLATE.replace(
    "{{ m['content'] }}",
    "{{ m['content'].split()[0 if brief == 'first' else -1] if brief else m['content'] }}",
)


@contextmanager
def place() -> Iterator[Path]:
    """Yield a directory with models and conversations: one is invalid, and one has nothing to predict within a row."""
    with scratch() as directory:
        words = word_tokenizer()
        words.chat_template = BRIEF
        for name in ("teacher", "student"):
            write_causal(directory / name, words, 16, torch.float32)
            words.save_pretrained(directory / name)
        long = [{"role": "user", "content": "w1 " * USUAL["length"]}, {"role": "assistant", "content": "w2"}]
        rows = [*map(json.dumps, [{"messages": long}, *conversations(0)]), '{"messages": 3}']
        (directory / "chats.jsonl").write_text("\n".join(rows))
        (directory / "other.jsonl").write_text("\n".join(rows[::-1]))
        completions = [{"prompt": f"w{n}", "completion": f"w{n + 1} w{n + 2}"} for n in range(20)]
        (directory / "completions.jsonl").write_text("\n".join(map(json.dumps, completions)))
        # Two tokenizers with equal tokens and different end tokens.
        for name, end in (("special", "<end>"), ("ended", "w9")):
            shutil.copytree(directory / "student", directory / name)
            special = load_tokenizer(directory / "student")
            special.add_special_tokens({"additional_special_tokens": ["<end>", "w9"]})
            special.eos_token = end
            special.save_pretrained(directory / name)
        (directory / "other.jinja").write_text(TEMPLATE.replace(" <end>", " w0 <end>"))
        # Tokenizers of other teachers: with another template, with the numbers of two words exchanged, and one that
        # reads a word as another one.
        words.chat_template = TEMPLATE.replace(" <end>", " w0 <end>")
        for name in ("worded", "swapped", "renamed"):
            words.save_pretrained(directory / name)
            file = directory / name / "tokenizer.json"
            content = json.loads(file.read_text())
            numbers = content["model"]["vocab"]
            if name == "swapped":
                numbers["w1"], numbers["w2"] = numbers["w2"], numbers["w1"]
            if name == "renamed":
                content["normalizer"] = {"type": "Replace", "pattern": {"String": "w3"}, "content": "w4"}
            file.write_text(json.dumps(content))
        yield directory


def prepared(subject: Any, directory: Path, cache: str, **changes: Any) -> tuple[Any, Any, Any, str]:
    """Return the training batches and held-back rows of a run, its digests, and the identity of its evaluations.

    A batch is tokens, labels, and what a teacher with another tokenizer reads: its tokens, and groups. Instead of
    batches, the error of data that are refused.
    """
    with begun(subject, directory, cache, **changes) as run:
        try:
            batches = run.make_batches()
        except DataError as error:
            return str(error), [], {}, ""
        trained = [batches.batch(1, at) for at in range(1, batches.batches + 1)]
        order = torch.arange(len(run.held_back))
        evaluated = [run.held_back.batch(order, at) for at in range(1, run.held_back.batches + 1)]
        pairs = run.pairs
        taught = [
            [
                []
                if pairs is None or b.examples is None
                else [(pairs[n].teacher_tokens.tolist(), pairs[n].groups.tolist()) for n in b.examples.tolist()]
                for b in part
            ]
            for part in (trained, evaluated)
        ]
        read = [
            [(b.tokens.tolist(), b.labels.tolist(), more) for b, more in zip(part, others, strict=True)]
            for part, others in zip((trained, evaluated), taught, strict=True)
        ]
        return read[0], read[1], dict(run.digests), eval_config(run, whole=False, teacher=None).digest


@contextmanager
def begun(subject: Any, directory: Path, cache: str, **changes: Any) -> Iterator[Any]:
    """Yield a run that has made nothing yet."""
    paths = {"teacher": "teacher", "student": "student", "data": "chats.jsonl", "out": "out", "data_cache": cache}
    options = {**USUAL, **paths, **changes}
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
    """One directory of tokens is shared by all runs, and each run is repeated with a directory of its own."""
    with place() as directory:
        shared = {name: prepared(subject, directory, "shared", **change) for name, change in CHANGES.items()}
        for name, change in CHANGES.items():
            alone = prepared(subject, directory, f"alone {name}", **change)
            for part, seen, expected in zip(("training", "held-back"), shared[name], alone, strict=False):
                assert seen == expected, f"{part} data of a run with {change} are not those with a directory of its own"
    for one, other in combinations(CHANGES, 2):
        assert shared[one][0] != shared[other][0], (
            f"{one} and {other} have the same data: the second run took them from the first, or nothing was tried"
        )
    usual, with_template = (
        [tokens for _, _, pairs in shared[name][0] for tokens, _ in pairs]
        for name in ("pairs", "pairs of another template of the student")
    )
    assert usual, "the teacher reads no conversation; the claim was not tried"
    assert usual == with_template, "chat_template, which is for the student, changes the tokens of the teacher"


OF_DATA: list[dict[str, Any]] = [
    *({"eval_rows": rows} for rows in (0, 1, 2, 3)),
    *({"eval_data": "other.jsonl", "eval_rows": rows} for rows in (0, 1, 2)),
    {"eval_data": "short.jsonl"},
    {"data": "other.jsonl"},
    {"mix": "other.jsonl"},
    {"mix": "other.jsonl", "mix_weight": 3},
    {"mix": "short.jsonl"},
    *({"mix": f"{first} other.jsonl"} for first in ("short.jsonl", "completions.jsonl")),
    *({"cross_tokenizer": True, "teacher": teacher} for teacher in ("teacher", "worded", "swapped", "renamed")),
]
"""Settings that all differ in the rows to train on, in the rows to evaluate, or in the rows of the teacher."""

OF_THE_DATA: dict[str, Any] = {"mix": "chats.jsonl", "mix_weight": 3}


FEW = 25
"""Evaluated conversations of a file, which has fewer than twice as many."""


def falsify_runs_with_other_data_have_other_digests(subject: Any) -> None:
    """Files at one path, and tokenizers of one teacher, may change between the attempts of a run."""
    with place() as directory:
        (directory / "short.jsonl").write_text("\n".join(map(json.dumps, conversations(0)[:30])))
        runs = [prepared(subject, directory, "cache", **case) for case in OF_DATA]
        again = [prepared(subject, directory, "cache", **OF_DATA[number]) for number in (6, -1)]
        every, few = (
            prepared(subject, directory, "cache", eval_data="other.jsonl", eval_rows=rows, batch_size=1)[1]
            for rows in (0, FEW)
        )
        # A mixture may name the path of the data, to give it a weight; it is one source then, of the same rows.
        usual, weighted = (prepared(subject, directory, "cache", batch_size=1, **mix) for mix in ({}, OF_THE_DATA))
    for part, seen, expected in zip(("trained", "held-back"), weighted, usual, strict=False):
        seen, expected = sorted(map(str, seen)), sorted(map(str, expected))
        assert_equal(f"{part} rows of a mixture of the data alone", seen, expected)
    assert FEW < len(every) < 2 * FEW, f"{FEW} of {len(every)} rows are evaluated; the claim was not tried"
    spread = [number * len(every) // FEW for number in range(FEW)]
    seen = [every.index(row) if row in every else None for row in few]
    assert_equal(f"the evaluated {FEW} of {len(every)} conversations, evenly chosen", seen, spread)
    for seen, expected in zip(again, (runs[6], runs[-1]), strict=True):
        assert_equal("digests of an equal run", seen[2], expected[2])
    for one, other in combinations(range(len(OF_DATA)), 2):
        assert runs[one][:2] != runs[other][:2], f"{OF_DATA[one]} and {OF_DATA[other]} have the same rows"
        assert runs[one][2] != runs[other][2], (
            f"runs with {OF_DATA[one]} and {OF_DATA[other]} have the digests {runs[one][2]}"
        )
        assert runs[one][1] == runs[other][1] or runs[one][3] != runs[other][3], (
            f"{OF_DATA[one]}, {OF_DATA[other]}: one identity of evaluations"
        )


TURNS_DIVIDED = TEMPLATE.replace(" <end>", "{% if m['role'] == 'assistant' and not loop.last %} w0{% endif %} <end>")
"""A template that renders earlier answers differently from the last one, so each answer needs a separate document."""


def falsify_no_conversation_is_trained_on_and_held_back(subject: Any) -> None:
    """The first turn of a conversation, which every document of it contains, has its number."""

    def numbers(batches: Any) -> set[int]:
        return {number for tokens, _, _ in batches for row in tokens for number in row if number >= FIRST_NUMBER}

    between = 0  # runs in which nine tenths of the documents end within a conversation
    with place() as directory:
        (directory / "divided.jinja").write_text(TURNS_DIVIDED)
        for count in range(12, 20):
            chats = conversations(0)[:count]
            (directory / "part.jsonl").write_text("\n".join(map(json.dumps, chats)))
            trained, held_back = map(
                numbers,
                prepared(subject, directory, "cache", data="part.jsonl", chat_template="divided.jinja", eval_rows=0)[
                    :2
                ],
            )
            case = f"{count} conversations"
            assert_equal(f"{case}: trained on and held back", sorted(trained & held_back), [])
            assert_equal(f"{case}: with their number", len(trained | held_back), count)
            first = [number for number, chat in enumerate(chats) for _ in chat["messages"][1::2]]
            cut = len(first) * 9 // 10
            between += first[cut - 1] == first[cut]
    assert between, "no division of the documents falls within a conversation; the claim was not tried"


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
MISFITS: Mapping[str, tuple[dict[str, Any], str]] = {
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
    "more logits, by text": ({"teacher": "wide", **CROSS}, ""),
    "an adapter without weights": ({"student": "new", "lora": 2}, "--lora needs a trained student"),
    "a new student": ({"student": "new"}, ""),
    "weights of fewer bits": ({"weights": "bfloat16"}, "--weights bfloat16 needs --dtype bfloat16"),
    "fewer bits": ({"weights": "bfloat16", "dtype": "bfloat16"}, ""),
    "a sharded quantized teacher": ({"quantization": "{}", "shard_teacher": True}, "quantiz"),
    "no teacher": ({"teacher": None}, "--student needs --teacher"),
    "no data": ({"data": None}, "--student needs --data"),
    "another tokenizer, by number": ({**CROSS, "share_vocabulary": "pad"}, "needs no share_vocabulary"),
    "another tokenizer, generated": ({**CROSS, "on_policy": 0.5}, "needs on_policy 0"),
    "another tokenizer, generated later": ({**CROSS, "on_policy_end": 0.5}, "needs on_policy 0"),
    "another tokenizer, packed": ({**CROSS, "documents": "pack"}, "needs padded rows"),
    "another tokenizer, matched": ({**CROSS, "feature_weight": 0.5}, "needs feature_weight 0"),
    "another tokenizer, matched later": ({**CROSS, "feature_weight_end": 0.5}, "needs feature_weight 0"),
    "another tokenizer, stored": ({**CROSS, "teacher_outputs": "stored"}, "needs no teacher_outputs"),
    "another tokenizer, served": ({**CROSS, "teacher_url": "http://127.0.0.1:9"}, "needs no teacher_url"),
    "another tokenizer, no teacher": ({**CROSS, "teacher": None}, "needs a teacher"),
}
"""Settings, and words of the refusal; none if they are accepted."""


def falsify_models_that_do_not_fit_are_refused(subject: Any) -> None:
    with place() as directory:
        _wide(directory)
        load_tokenizer(directory / "student").save_pretrained(directory / "new")
        shutil.copy(directory / "student" / "config.json", directory / "new")
        for kind, (change, words) in MISFITS.items():

            def begin(change: dict[str, Any] = change) -> None:
                with begun(subject, directory, "cache", **change) as run:
                    run.join()
                    run.make_batches()
                    if "teacher_url" in change:
                        return  # no server answers there
                    run.student = run.make_student()
                    run.make_teacher()
                    if "init_from" in change:
                        run.recipe.export.load(directory / change["init_from"])

            message = refusal(begin, SettingError)
            text, wanted = message or "no refusal", words or "no refusal"
            assert wanted in text, f"{kind}: {text!r}; expected {wanted!r}"
        # A token beyond the vocabulary, whichever file has it: to train on, of a mixture, or evaluated.
        words = load_tokenizer(directory / "student")
        words.add_tokens(["beyond"])
        words.save_pretrained(directory / "student")
        words.save_pretrained(directory / "teacher")
        chat = [{"role": "user", "content": "w1"}, {"role": "assistant", "content": "beyond w2"}]
        (directory / "beyond.jsonl").write_text("\n".join([json.dumps({"messages": chat})] * 20))
        roles = ("data", "mix", "eval_data")
        for role in (*roles, None):
            files = {name: "beyond.jsonl" if name == role else "other.jsonl" for name in roles}
            with begun(subject, directory, "cache", **files) as run:
                run.make_batches()
                words = refusal(run.make_student, DataError)
            assert bool(words) == (role is not None), f"with a token beyond the vocabulary in {role}: {words!r}"
            assert role is None or f"token {len(VOCABULARY)}" in words, f"with the token in {role}: {words!r}"


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
    """The teacher is in bfloat16, and so are weights that the run may begin with."""
    few = few and dtype == "bfloat16"
    options: dict[str, Any] = {"dtype": dtype, "checkpoint_activations": recomputed, "compile": compiled}
    options |= {"documents": "pack" if packed else "pad", "weights": "bfloat16" if few else "float32"}
    options |= {"lora": 2} if lora else {}
    wanted = torch.float64 if dtype == "float64" else torch.bfloat16 if few else torch.float32
    with place() as directory:
        write_causal(directory / "teacher", load_tokenizer(directory / "teacher"), 16, torch.bfloat16)
        compiling = mock.patch.object(subject, "compile_layers")
        with compiling as compile_layers, begun(subject, directory, "cache", **options) as run:
            run.join()
            run.make_batches()
            shapes = {"student": run.recipe.student.shapes(), "teacher": run.recipe.teacher.shapes()}
            run.student = run.make_student()
            modules = {"student": run.student, "teacher": run.make_teacher()}
            begins = {} if lora else run.recipe.export.load(directory / "teacher")
            eight = run.settings.replace(quantization='{"quant_method": "bitsandbytes", "load_in_8bit": true}')
            needed = plan(eight, ranks=2)
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
        assert not wrong and len(planned) == len(seen), f"{case}: the {whose} is planned as {wrong[:2]}, unlike made"
        has_adapter = lora and whose == "student"  # in float32 at least
        kinds = {dtype for _, dtype, trained in seen.values() if not (has_adapter and trained)}
        assert_equal(f"{case}: dtypes of the {whose}", kinds, {wanted if whose == "student" else torch.bfloat16})
        kinds = {dtype for _, dtype, trained in seen.values() if has_adapter and trained}
        assert kinds <= {torch.promote_types(wanted, torch.float32)}, f"{case}: the adapter has {kinds}"
        attention = module.model.config._attn_implementation
        assert attention.startswith("by_document") == packed, f"{case}: the {whose} has the attention {attention}"
    assert_equal(f"{case}: dtypes of initial weights", {t.dtype for t in begins.values()}, set() if lora else {wanted})
    evaluated = [name for name, part in run.student.named_modules() if not part.training]
    assert not evaluated, f"{case}: the student is trained with {evaluated[:3]} in eval mode"
    recomputes = any(getattr(module, "gradient_checkpointing", False) for module in run.student.modules())
    assert_equal(f"{case}: recomputes activations", recomputes, recomputed)
    small = sum(p.numel() for name, p in modules["teacher"].named_parameters() if name.endswith("proj.weight"))
    size = sum(p.nbytes for p in modules["teacher"].parameters()) - small  # a byte of two is left
    trained = sum(parameter.nbytes for parameter in run.student.parameters() if parameter.requires_grad)
    buffers = needed.memory["gradients"], needed.memory["buffers of DDP"]
    assert_equal(f"{case}: planned bytes of the gradients, and of the buffers of DDP", buffers, (trained, trained))
    assert_equal(
        f"{case}: planned bytes of a teacher whose layers, but the last, have 8 bits", needed.memory["teacher"], size
    )
    names = [call.args[0] for call in compile_layers.call_args_list]
    assert_equal(f"{case}: compiled models", names, ["the student", "the teacher"] * compiled)
    assert digests[1] == digests[2], f"the digest of a quantized teacher depends on the order of {quantized[:2]}"
    assert len({*digests}) == 3, f"not quantized, and quantized by {quantized[1:]}, a teacher has the digests {digests}"

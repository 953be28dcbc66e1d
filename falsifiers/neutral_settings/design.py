"""Settings of whole runs: those that may change a run, those that must not, and rows that cover all pairs of both."""

import random
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

Row = dict[str, str]

TRAINED: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "rows": {
        "padded": {},
        "packed": {"documents": "pack"},
        "grouped": {"documents": "pad", "group_by_length": True},
        "mixed": {"mix": 2},
        "mixed and packed": {"mix": 0.5, "documents": "pack"},
    },
    "turns": {"every": {}, "last": {"turns": "last"}},
    "template": {"plain": {}, "marked": {}, "brief": {"template_options": '{"brief": true}'}},
    "length": {"whole": {"length": 60}, "cut": {"length": 30}},
    "batches": {
        "2": {"batch_size": 2},
        "3, accumulated": {"batch_size": 3, "accumulate": 2},
        "1, accumulated": {"batch_size": 1, "accumulate": 4},
    },
    "epochs": {"2": {"epochs": 2}, "1": {"epochs": 1}},
    "student": {
        "whole": {},
        "with dropout": {},
        "adapter": {"lora": 2, "lora_options": '{"target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.2}'},
        "merged adapter": {"lora": 2, "lora_merge": True},
        "tied": {},
    },
    "numbers": {
        "float32": {},
        "float64": {"dtype": "float64"},
        "autocast": {"dtype": "bfloat16"},
        "bfloat16": {"dtype": "bfloat16", "weights": "bfloat16"},
    },
    "weights": {
        "divergence": {},
        "both": {"ce_weight": 0.5, "kd_weight": 0.7},
        "to text": {"kd_weight_end": 0.0, "ce_weight_end": 1.0, "anneal": "cosine"},
        "from text": {"ce_weight": 1.0, "kd_weight": 0.0, "kd_weight_end": 1.0, "anneal_warmup": 2},
    },
    "temperature": {"1": {}, "2": {"temperature": 2.0}, "falling": {"temperature": 4.0, "temperature_end": 1.0}},
    "divergence": {
        "forward": {},
        "reverse": {"divergence": "reverse_kl"},
        "mixture": {"divergence": "jensen_shannon", "beta": 0.3},
    },
    "features": {
        "none": {},
        "cosine": {"feature_weight": 0.5},
        "several": {"feature_weight": 0.3, "feature_distance": "l2", "feature_layers": "-1:-1,0:1"},
    },
    "teacher": {
        "equal": {},
        "larger": {"share_vocabulary": "truncate"},
        "smaller": {"share_vocabulary": "truncate-student"},
        "padded": {"share_vocabulary": "pad"},
        "other tokenizer": {"cross_tokenizer": True},
    },
    "answers": {
        "data": {},
        "generated": {"on_policy": 0.5, "answer_tokens": 3, "answer_top_p": 0.9},
        "more generated": {"on_policy": 0.0, "on_policy_end": 1.0, "answer_tokens": 2, "answer_temperature": 2.0},
    },
    "optimizer": {
        "adamw": {"lr": 0.02},
        "adafactor": {"optimizer": "adafactor", "lr": 0.02},
        "sgd": {"optimizer": "torch.optim:SGD", "optimizer_options": '{"momentum": 0.9}', "lr": 0.3},
    },
    "update": {"plain": {}, "clipped": {"clip": 0.3}, "by layer": {"layer_decay": 0.6}},
    "schedule": {
        "cosine": {"warmup": 2},
        "wsd": {"schedule": "wsd", "lr_decay": 2, "warmup": 0},
        "linear": {"schedule": "linear", "warmup": 0.3, "lr_end": 0.0},
        "constant": {"schedule": "constant", "warmup": 0},
    },
    "held back": {"last tenth": {}, "other file": {"eval_data": True}},
}
"""The settings of a configuration, by what they choose. A run with another choice may be another run."""

NEUTRAL: Mapping[str, tuple[str, ...]] = {
    "tokens": ("made here", "by workers", "kept", "kept by another process", "beside those of another run"),
    "files": ("JSON lines", "Parquet", "several"),
    "outputs": ("live", "stored", "every token kept"),
    "memory": ("activations kept", "computed again"),
    "saved": ("never", "every step, last kept", "every second step"),
    "interrupted": ("no", "after a step", "within a step", "limited", "while it is evaluated"),
    "evaluated": ("at the end", "every step", "every second step, drafts", "every step, a row"),
    "logged": ("every step", "every second step", "epochs"),
    "watched": ("no", "by objects", "by a file"),
    "attention": ("usual", "eager"),
    "source": ("call", "flags", "file", "variables"),
    "files of models": ("one", "several", "template in a file"),
}
"""Settings that decide how a run is computed; the first choice is the usual one."""

APPROXIMATE = {"outputs", "attention"}
"""Neutral settings that round otherwise: other batches or operations give the same logits."""


def usual(row: Mapping[str, str]) -> Row:
    """Return the row with the usual choice of all neutral settings."""
    return {**row, **{name: choices[0] for name, choices in NEUTRAL.items()}}


def changed(row: Mapping[str, str]) -> list[str]:
    """Return the neutral settings of a row whose choice is not the usual one."""
    return [name for name, choices in NEUTRAL.items() if row[name] != choices[0]]


def possible(row: Row) -> Row:
    """Return the row with other choices where two choices exclude each other."""
    row = dict(row)
    is_stored = row["outputs"] != "live"
    if row["teacher"] == "other tokenizer":
        row |= {"answers": "data", "features": "none", "outputs": "live", "divergence": "forward"}
        row |= {"attention": "usual"}  # the sign of a difference of probabilities may depend on rounding
        row |= {"rows": {"packed": "padded", "mixed and packed": "mixed"}.get(row["rows"], row["rows"])}
        row |= {} if row["evaluated"] != "every second step, drafts" else {"evaluated": "every step"}
        is_stored = False
    if is_stored:
        row |= {"answers": "data", "features": "none"}
        if row["outputs"] == "every token kept" and row["temperature"] == "falling":
            row |= {"temperature": "2"}
        if row["outputs"] == "every token kept" and row["evaluated"] == "every second step, drafts":
            row |= {"evaluated": "every step"}
    if any(name in APPROXIMATE for name in changed(row)):
        row |= {"numbers": "float64"}
        row |= {"student": "tied"} if row["attention"] == "eager" and row["student"] == "with dropout" else {}
        row |= {"answers": "data"}  # a sampled token may be another one
    if row["teacher"] == "padded" and row["divergence"] != "forward":
        row |= {"divergence": "forward"}  # a token that one model lacks has an infinite reverse divergence
    if row["numbers"] == "bfloat16":
        row |= {"optimizer": "adamw"}  # which alone updates float32 copies
    if "packed" in row["rows"] or (row["turns"], row["length"]) == ("last", "cut"):
        row |= {"epochs": "2"}  # fewer rows, and a run has several steps
    if row["student"] == "merged adapter" and row["numbers"] == "bfloat16":
        row |= {"numbers": "autocast"}
    return row


def covering_rows(variants: int, seed: int = 0) -> list[list[Row]]:
    """Return groups of rows that together have every possible pair of choices, greedily.

    The rows of a group are one configuration with `variants` choices of neutral settings. A pair that no row has, since
    its choices exclude each other, is left out.
    """
    draw = random.Random(seed)
    missing = {
        frozenset({(one, a), (other, b)})
        for (one, first), (other, second) in combinations([*TRAINED.items(), *NEUTRAL.items()], 2)
        for a in first
        for b in second
        if not (one in TRAINED and other in TRAINED)
    }
    groups: list[list[Row]] = []
    while missing and len(groups) < 100:
        rows: list[Row] = []
        for _ in range(variants):
            candidates = list(_candidates(draw, rows[0] if rows else None))
            best = max(candidates, key=lambda row: len(missing & pairs(row)))
            rows.append(best)
            missing -= pairs(best)
        groups.append(rows)
    return groups


def _candidates(draw: random.Random, first: Row | None) -> Iterator[Row]:
    for _ in range(40):
        trained = {name: draw.choice(list(choices)) for name, choices in TRAINED.items()}
        trained |= {name: first[name] for name in TRAINED} if first is not None else {}
        row = possible({**trained, **{name: draw.choice(choices) for name, choices in NEUTRAL.items()}})
        if first is None or all(row[name] == first[name] for name in TRAINED):
            yield row


def pairs(row: Row) -> set[frozenset[tuple[str, str]]]:
    """Return the pairs of choices of a row."""
    return set(map(frozenset, combinations(row.items(), 2)))

"""The settings of compared runs: those that define a configuration, neutral ones, and rows that cover their pairs."""

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
"""The settings of a configuration, by name of the factor and of the choice. Another choice may change the result."""

NEUTRAL: Mapping[str, tuple[str, ...]] = {
    # Who tokenizes the data: the run, its worker processes, the process before the run (cached), another process
    # (cached); in the last choice the cache has the tokens of the same files with other settings.
    "tokens": ("made here", "by workers", "kept", "kept by another process", "cache shared with another run"),
    # The format of the data files.
    "files": ("JSON lines", "Parquet", "several"),
    # The teacher outputs: from a forward, stored logits, or stored top-k outputs with k = all tokens.
    "outputs": ("live", "stored", "every token kept"),
    # Activation checkpointing.
    "memory": ("activations kept", "computed again"),
    # Checkpoints.
    "saved": ("never", "every step, last kept", "every second step"),
    # An interrupt of the run, which is then resumed; "limited" ends the first part by `max_steps`.
    "interrupted": ("no", "after a step", "within a step", "limited", "while it is evaluated"),
    # Evaluations; "drafts" also measures accepted draft tokens, "a row" evaluates one row.
    "evaluated": ("at the end", "every step", "every second step, drafts", "every step, a row"),
    "logged": ("every step", "every second step", "epochs"),
    # Callbacks that read every value: passed as objects, or named in a callback file.
    "watched": ("no", "by objects", "by a file"),
    "attention": ("usual", "eager"),
    # How the settings are given.
    "source": ("call", "flags", "file", "variables"),
    # How models are saved; the chat template in the tokenizer, or in a file of its own.
    "files of models": ("one", "several", "template in a file"),
}
"""Settings that only affect how a run is computed. The first choice is the usual one."""

APPROXIMATE = {"outputs", "attention"}
"""Neutral settings that change rounding: logits are computed in other batches or by other operations."""


def usual(row: Mapping[str, str]) -> Row:
    """Return the row with the usual choice of all neutral settings."""
    return {**row, **{name: choices[0] for name, choices in NEUTRAL.items()}}


def changed(row: Mapping[str, str]) -> list[str]:
    """Return the neutral settings of a row whose choice is not the usual one."""
    return [name for name, choices in NEUTRAL.items() if row[name] != choices[0]]


def possible(row: Row) -> Row:
    """Return the row with a choice replaced wherever two choices are incompatible."""
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
        row |= {"answers": "data"}  # rounding may change a sampled token
    if row["teacher"] == "padded" and row["divergence"] != "forward":
        row |= {"divergence": "forward"}  # a token that one model lacks has an infinite reverse divergence
    if row["numbers"] == "bfloat16":
        row |= {"optimizer": "adamw"}  # the only one that updates float32 copies
    if "packed" in row["rows"] or (row["turns"], row["length"]) == ("last", "cut"):
        row |= {"epochs": "2"}  # there are fewer rows, but a run needs several steps
    if row["student"] == "merged adapter" and row["numbers"] == "bfloat16":
        row |= {"numbers": "autocast"}
    return row


def covering_rows(variants: int, seed: int = 0) -> list[list[Row]]:
    """Return groups of rows that cover all pairs of a neutral choice with any other choice, as far as possible.

    A greedy covering array: every new row is, of 40 random candidates, the one with the most missing pairs. The search
    ends after 100 groups, since no row has an incompatible pair.

    Args:
        variants: Number of rows of a group, which share the configuration and differ in neutral settings.
        seed: The seed of the candidates.
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

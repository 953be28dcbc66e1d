"""Legal and illegal values of every setting, independent of the trainer's declarations."""

import json
from typing import Any

from falsifiers.support.oracles import DIVERGENCES

COUNTS = [3, 5, 7, 11]
PATHS = ["first", "/second/path", "a third", "."]
NUMBERS = [0.5, 1.25, 3, 1e-2]
FEW, SIZES, BOTH, SCALES = [0, 1, 2, 3], [16, 32, 48, 65536], [True, False], [0.0001, 1.5, 3, 10000]
LEGAL: dict[str, list[Any]] = {
    **dict.fromkeys(("data", "out", "trace", "callbacks", "teacher", "student", "teacher_cache", "init_from"), PATHS),
    **dict.fromkeys(("teacher_outputs", "data_cache", "chat_template", "eval_data"), PATHS),
    **dict.fromkeys(
        ("teacher_steps", "teacher_layers", "layers", "batch_size", "accumulate", "lr_decay", "lora"), COUNTS
    ),
    **dict.fromkeys(("max_steps", "smoke", "rank_timeout", "project_to_steps", "threads"), COUNTS),
    **dict.fromkeys("warmup log_every anneal_warmup save_every eval_every accept_depth data_cache_gib".split(), FEW),
    **dict.fromkeys(("ce_weight", "kd_weight", "feature_weight", "best_min_delta"), NUMBERS),
    **dict.fromkeys(("ce_weight_end", "kd_weight_end", "feature_weight_end"), NUMBERS),
    **dict.fromkeys(("temperature", "temperature_end"), SCALES),
    **dict.fromkeys(("teacher_width", "width"), SIZES),
    **dict.fromkeys(("force", "rewind", "checkpoint_activations", "lora_merge", "shard_teacher"), BOTH),
    "eval_rows": FEW,
    "length": [2, 17, 33, 10**18 - 1],
    "epochs": [1, 2, 3, 4],
    "lr": [0.5, 1e-6, 1000000, 0.25],
    "seed": [1, 2, 3, 10**18 - 1],
    "device": ["cpu", "cuda", "cuda:1", "cuda:17"],
    "dtype": ["float64", "bfloat16", "float32"],
    "weights": ["bfloat16", "float32"],
    "strategy": ["fsdp2", "ddp"],
    "teacher_device_map": ["auto", "balanced", "cpu", "é"],
    "clip": [0.5, 1e-6, 1e30, 3],
    "divergence": sorted(DIVERGENCES, reverse=True),
    "beta": [0, 0.25, 0.75, 1],
    "data_share": [0.5, 1, 1e-6, 0.125],
    "lr_end": [0, 0.25, 0.75, 1],
    "schedule": ["linear", "constant", "wsd", "cosine"],
    "anneal": ["cosine", "linear"],
    "parts": ["a:B", "mine.models:Mine", "c.d:E.F"],
    "lora_options": ["{}", '{"lora_alpha": 4}', '{"target_modules": ["q"]}'],
    "turns": ["last", "every"],
    "template_options": ["{}", '{"enable_thinking": false}', '{"é": null}'],
    "arguments": ["{}", '{"a": [1]}', '{"é": null}'],
    "documents": ["pad", "pack"],
    "separator": ["--", "\n", "a b", "é"],
    "share_vocabulary": ["truncate", "truncate-student", "pad"],
    "feature_distance": ["l2", "cosine"],
    "feature_layers": ["0:0", "-1:-1,0:2", "1:-2", "3:3,3:3"],
    "keep": [0, 1, 2, 3000],
    "best_metric": ["eval/hard_loss", "eval/agreement", "a b", "x"],
    "best_mode": ["max", "min"],
    "resume": ["latest", "a checkpoint", "/second/path", "."],
    "hang_after": [0.0, 0.5, 30, 1e6, 1800.5],
}
PATH_SETTINGS = [name for name, values in LEGAL.items() if values is PATHS or name == "resume"]
ALIASES = {
    "smoke": "APR_DISTILL_MAX_STEPS",
    "log_every": "APR_DISTILL_LOG_EVERY",
    "project_to_steps": "APR_DISTILL_PROJECT_TO_STEPS",
    "save_every": "APR_DISTILL_CHECKPOINT_EVERY",
}

NO_COUNTS = ["0", "-1", "+5", "1.5", "1e3", "abc", " 5 ", "5\n", "٣", "0x10", "1_000", "nan", "True", "None", "9" * 19]
NO_COUNTS_IN_TOML = ["0", "-1", "5.0", "true", '"5"', '""', "[5]", "nan", "1" + "0" * 19]
NO_ZERO_COUNTS = NO_COUNTS[1:]
NO_NUMBERS = ["-0.5", "nan", "inf", "1e999", "-inf", "abc", " 1", "1_0", "0x1", "1,5"]
WEIGHTS = ("ce_weight", "kd_weight", "feature_weight")
NO_WIDTHS = [*NO_COUNTS, "17", "8", "65552"]
SWITCHES = ("force", "rewind", "checkpoint_activations", "lora_merge", "shard_teacher")
NO_SWITCHES = ["yes", "True", "2", "on"]
NO_DEVICES = ["gpu", "CPU", "cuda:x", "cuda:-1", "mps"]
NO_DTYPES = ["float16", "bf16", "torch.float32"]
ILLEGAL: dict[str, list[str]] = {
    **{name: NO_COUNTS for name, values in LEGAL.items() if values is COUNTS or name == "epochs"},
    **dict.fromkeys(("teacher_width", "width"), NO_WIDTHS),
    **dict.fromkeys(
        "warmup seed log_every anneal_warmup save_every keep eval_every accept_depth data_cache_gib eval_rows".split(),
        NO_ZERO_COUNTS,
    ),
    **{f"{name}{end}": [*NO_NUMBERS, "1.1e30"] for name in WEIGHTS for end in ("", "_end")},
    "best_metric": [""],
    "best_mode": ["Min", "lowest", "min "],
    "best_min_delta": [*NO_NUMBERS, "1.1e30"],
    "rewind": NO_SWITCHES,
    "checkpoint_activations": NO_SWITCHES,
    "shard_teacher": NO_SWITCHES,
    "teacher_device_map": [""],
    "parts": ["", "a", "a.b", "a:b:c", ":B", "a:", "a-b:C", "a/b.py:C"],
    "lora_merge": NO_SWITCHES,
    "lora_options": ["", "a", "[1]", "null"],
    "template_options": ["", "a", "[1]", "null"],
    "turns": ["Last", "all", "every "],
    "arguments": ["", "a", "[1]", "3", "{'a': 1}", "null"],
    "documents": ["Pad", "packed", "none", "pad "],
    "separator": [""],
    "share_vocabulary": ["Truncate", "truncate_student", "cut", "pad "],
    "feature_distance": ["cos", "L2", "mse", "l2 "],
    "feature_layers": ["", "0", "0:", "0:0,", "0:0;1:1", "a:b", "0:1:2"],
    **{name: [""] for name in PATH_SETTINGS},
    "length": [*NO_COUNTS, "1"],
    **{name: [*NO_NUMBERS, "0", "0.00009", "10001"] for name in ("temperature", "temperature_end")},
    "clip": [*NO_NUMBERS, "0", "-0", "1.1e30"],
    **{name: [*NO_NUMBERS, "1.01"] for name in ("beta", "lr_end")},
    "data_share": [*NO_NUMBERS, "0", "1.01"],
    "schedule": ["Cosine", "step", "wsd ", "warmup_stable_decay"],
    "divergence": ["kl", "Forward_KL", "jsd", "forward_kl "],
    "anneal": ["constant", "Linear", "cos"],
    "strategy": ["DDP", "fsdp", "fsdp2 ", "zero"],
    "lr": [*NO_NUMBERS, "0", "-0", "1e-400", "1000001"],
    "hang_after": [*NO_NUMBERS, "-1", "1000001"],
    "force": NO_SWITCHES,
    "device": NO_DEVICES,
    "dtype": NO_DTYPES,
    "weights": [*NO_DTYPES, "float64"],
}
"""Texts that are refused, for each setting."""
WRONG_TYPES: list[tuple[str, str]] = [
    *(("smoke", text) for text in NO_COUNTS_IN_TOML),
    *(("temperature", text) for text in ("true", '"2.0"', "nan", "0", "[2.0]")),
    *(("force", text) for text in ("1", '"true"')),
    *(("out", text) for text in ("1", "true", '["a"]', '""')),
    *(("device", text) for text in ("0", '"gpu"')),
    *(("dtype", text) for text in ("32", '"half"')),
]
"""A setting and a value in TOML that is refused."""


def variables(name: str) -> list[str]:
    """Return the variables of a setting, in order of precedence."""
    return [f"REFERENCE_TRAINER_{name.upper()}", *filter(None, [ALIASES.get(name)])]


def as_text(value: Any) -> str:
    """Return a value as the text of a flag or variable."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def as_toml(values: dict[str, Any]) -> str:
    """Return the text of a settings file."""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())

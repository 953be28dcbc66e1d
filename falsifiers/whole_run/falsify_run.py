"""Attacks on whole runs with random settings: every step is compared with a plain loop in float64."""

import io
import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from safetensors.torch import load_file

import reference_trainer
from falsifiers.support.causal import VOCABULARY, WORDS, random_llama, word_tokenizer
from falsifiers.support.decoder_oracle import with_random_weights
from falsifiers.support.runs import TIMES, scratch
from falsifiers.whole_run.plain_loop import Model, PlainRun, Settings, chat_rows, text_rows
from reference_trainer.callbacks.base import Callback
from reference_trainer.models.decoder import Decoder, DecoderConfig
from reference_trainer.storage.export import save_decoder

Chosen = dict[str, Any]
SEEDS = st.integers(0, 2**32 - 1)
TOLERANCE, TOLERANCE_OF_LLAMA = 1e-9, 1e-5
"""Largest differences, relative to the largest element or to 1.

They allow the rounding of float64, which a run amplifies, and the rounding of the float32 norms of a Llama. A wrong
term differs by 1e-4 or more.
"""


def _options(optimizer: str, lr: float, **options: Any) -> Chosen:
    return {"optimizer": optimizer, "lr": lr, "optimizer_options": json.dumps(options) if options else None}


OPTIMIZERS: tuple[Chosen, ...] = (
    _options("adamw", 0.01),
    _options("adamw", 0.03, betas=[0.6, 0.9], eps=1e-3, weight_decay=0.5, amsgrad=True),
    _options("adafactor", 0.05),
    _options("adafactor", 0.02, weight_decay=0.5, beta2_decay=-0.5),
    _options("torch.optim:SGD", 0.1),
    _options("torch.optim:SGD", 0.03, momentum=0.9, nesterov=True, weight_decay=0.1),
    _options("torch.optim:RMSprop", 0.01, alpha=0.9, momentum=0.5, eps=1e-3),
)
ROWS: tuple[Chosen, ...] = tuple(
    {"documents": kind, "group_by_length": grouped} for kind in (None, "pad", "pack") for grouped in (False, True)
)
SCHEDULES: tuple[Chosen, ...] = (
    *({"schedule": "wsd", "lr_decay": None, "lr_end": end} for end in (0.0, 0.2, 0.5)),
    *({"schedule": "wsd", "lr_decay": decay, "lr_end": end} for decay, end in ((3, 0.1), (100, 0.5))),
    *({"schedule": shape, "lr_end": end} for shape in ("cosine", "linear") for end in (0.0, 0.3)),
    {"schedule": "constant"},
)
BEST_STEPS: tuple[Chosen, ...] = (
    {"best_metric": "eval/hard_loss"},
    {"best_metric": "eval/agreement", "best_mode": "max"},
    {"best_metric": "eval/kl_at_1", "best_min_delta": 0.02},
)
VALUES: dict[str, tuple[Any, ...]] = {
    "batch_size": (1, 2, 3, 5, 64),
    "accumulate": (1, 2, 3),
    "epochs": (1, 2, 3),
    "max_steps": (None, None, None, 1, 7),
    "temperature": (1.0, 2.0, 0.5),
    "temperature_end": (None, 1.0, 3.0),
    "ce_weight": (0.0, 0.3, 1.0),
    "ce_weight_end": (None, 0.0, 0.8),
    "kd_weight": (1.0, 0.6, 0.0, 0.0),
    "kd_weight_end": (None, 0.0, 1.5),
    "feature_weight": (0.0, 0.0, 2.0),
    "feature_weight_end": (None, None, 0.0, 1.0),
    "feature_distance": ("cosine", "l2"),
    "anneal": ("linear", "cosine"),
    "anneal_warmup": (0, 1, 4),
    "layer_decay": (1.0, 0.5),
    "clip": (None, 0.05, 1.0, 1e3),
    "warmup": (0, 1, 2, 3, 0.03, 0.3, 50),
    "seed": (0, 1, 7),
    "log_every": (1, 2, 3, 3, 0),
    "eval_every": (0, 2, 3),
    "save_every": (0, 4),
}
PLAIN: Chosen = {"feature_weight": 0.0, "feature_weight_end": None, "batch_size": 3, "epochs": 2, "max_steps": None}
TEACHER_WEIGHTS: tuple[Chosen, ...] = (
    *({},) * 4,
    {**PLAIN, "kd_weight": 0.0, "kd_weight_end": 1.5, "log_every": 2},
    {**PLAIN, "kd_weight": 0.6, "kd_weight_end": 0.0, "log_every": 2},
)
"""Settings that override `VALUES`. In the last two, kd_weight is 0 in the first or in the last step."""


def _divergence(draw: random.Random, mode: str | None, teacher: int, student: int) -> Chosen:
    """Draw a divergence that is finite, also if one model lacks tokens of the other."""
    allowed = {"jensen_shannon": [0.5, 0.1, 0.9, 0.0, 1.0], "forward_kl": [0.5], "reverse_kl": [0.5]}
    if mode == "pad":
        infinite, beta = ("forward_kl", 0.0) if teacher > student else ("reverse_kl", 1.0)
        del allowed[infinite]
        allowed["jensen_shannon"].remove(beta)
    name = draw.choice(sorted(allowed))
    return {"divergence": name, "beta": draw.choice(allowed[name])}


def _shared(draw: random.Random) -> Chosen:
    """Draw the settings that apply to texts and to chats."""
    chosen = {name: draw.choice(values) for name, values in VALUES.items()}
    chosen |= draw.choice(OPTIMIZERS) | draw.choice(SCHEDULES) | draw.choice(BEST_STEPS) | draw.choice(TEACHER_WEIGHTS)
    if not any(chosen[name] for name in ("ce_weight", "ce_weight_end", "kd_weight", "kd_weight_end")):
        chosen["kd_weight"] = 1.0
    if chosen["batch_size"] == 1 and chosen["max_steps"] is None:
        chosen["max_steps"] = 30  # the whole run may have 80
    return chosen


def text_settings(draw: random.Random) -> Chosen:
    """Draw settings of a run on a text. The key "with" describes teacher and text, and whether `init_from` is set.

    Settings are drawn by `random`: Hypothesis prefers simple values and small changes of an example, but a run takes
    half a second, so a few examples should cover many pairs of values.
    """
    chosen = _shared(draw) | draw.choice(ROWS)
    chosen["length"], chosen["separator"] = draw.choice([6, 9, 16]), draw.choice([None, "|", "ab"])
    chosen["data_share"] = draw.choice([None, 0.61, 1.0])
    mode, tokens = draw.choice(
        [(None, 256), (None, 256), ("truncate", 300), ("truncate-student", 200), ("pad", 300), ("pad", 200)]
    )
    chosen |= {"share_vocabulary": mode, **_divergence(draw, mode, tokens, 256)}
    layers, widths = draw.choice([(1, 2), (2, 1), (2, 2)]), draw.choice([(16, 16), (16, 24), (64, 16)])
    chosen |= {"layers": layers[0], "width": widths[0], "feature_layers": draw.choice(["-1:-1", "0:0,-1:-1", "-1:0"])}
    kind = draw.choice(["mixed", "mixed", "mixed", "short", "many"])
    if kind == "many":
        chosen |= {"batch_size": 64, "max_steps": min(chosen["max_steps"] or 8, 8), "data_share": 1.0}
    models = {"teacher": (layers[1], widths[1], tokens), "text": (kind, draw.randrange(1000))}
    return chosen | {"with": {**models, "init": draw.choice([True, True, False])}}


def _text(kind: str, seed: int, separator: str | None) -> bytes:
    """Return a text of documents of "mixed" or "short" lengths, or of "many" (1300) short ones. Some are empty."""
    draw = random.Random(seed)
    end, parts = (separator or "\n\n").encode(), list[bytes]()
    if kind == "many":
        return b"".join(bytes(draw.choices(b"cde", k=draw.randrange(4))) + end for _ in range(1300))
    while sum(map(len, parts)) < 180:
        size = draw.choice([0, 1, 4, 8, 9, 15, 16, 17, 33]) if kind == "mixed" else draw.randrange(5)
        parts.append(bytes(draw.choices(b"abcd e\n|", k=size)) + draw.choice([end, end, b"\n\n", b"|", b"ab"]))
    return b"".join(parts)


class InitialState(Callback):
    """Callback that stores the initial weights of student and projections."""

    def attach(self, pipeline: Any) -> None:
        self.student = {name: value.detach().clone() for name, value in pipeline.student.named_parameters()}
        self.modules = torch.nn.ModuleList(pipeline.features.projections)
        self.projections = {name: value.detach().clone() for name, value in self.modules.named_parameters()}


@given(seed=SEEDS)
def falsify_run_on_text_is_a_plain_loop(subject: Any, seed: int) -> None:
    settings = dict(chosen := text_settings(random.Random(seed)))
    models = settings.pop("with")
    layers, width, tokens = models["teacher"]
    kind, number = models["text"]
    text = _text(kind, number, settings["separator"])
    with scratch() as directory:
        (directory / "text").write_bytes(text)
        teacher = _decoder(directory / "teacher", layers, width, tokens, 1)
        if models["init"]:
            _decoder(directory / "begin", settings["layers"], settings["width"], 256, 2)
            settings["init_from"] = directory / "begin"
        settings |= {"data": directory / "text", "teacher": directory / "teacher"}
        initial, result = _run(subject, directory, settings)
        student = Model(initial.student, 2 if settings["width"] == 64 else 1)
        if models["init"]:
            assert_equal("initial weights", initial.student, load_file(directory / "begin/model.safetensors"), chosen)
        flat = reference_trainer.Settings(**settings).flat()
        flat["optimizer_options"] = json.loads(flat["optimizer_options"] or "{}")
        plain = PlainRun(flat, *text_rows(text, flat), student, teacher, initial.projections)
        compare(directory, plain, initial, result, chosen)


CHATS: dict[str, tuple[Any, ...]] = {
    "documents": (None, "pad", "pack"),
    "length": (9, 13, 40),
    "turns": ("every", "last"),
    "eval_rows": (0, 2, 4, 256),
    "feature_layers": ("-1:-1", "0:0,-1:-1", "1:0"),
}


def chat_settings(draw: random.Random) -> Chosen:
    """Draw settings of a run on chats. The key "with" describes the models and the chats."""
    chosen = _shared(draw) | {name: draw.choice(values) for name, values in CHATS.items()}
    if chosen["optimizer"] == "adamw" and chosen["optimizer_options"] is None:
        # The norms of a Llama are float32: a smaller epsilon enlarges the roundings of gradients near 0.
        chosen["optimizer_options"] = json.dumps({"eps": 1e-3})
    mode, surplus = draw.choice([(None, 0), (None, 0), ("truncate", 5), ("pad", 5)])
    chosen |= {"share_vocabulary": mode, **_divergence(draw, mode, surplus, 0)}
    chosen["group_by_length"] = draw.choice([False, True])
    models = {"tied": draw.choice([False, True]), "width": draw.choice([16, 32]), "surplus": surplus}
    return chosen | {"with": {**models, "chats": draw.choice([31, 48, 65]), "seed": draw.randrange(1000)}}


@given(seed=SEEDS)
def falsify_run_on_chats_is_a_plain_loop(subject: Any, seed: int) -> None:
    settings = dict(chosen := chat_settings(random.Random(seed)))
    models = settings.pop("with")
    with scratch() as directory, mock.patch.dict(os.environ, {"HF_HUB_OFFLINE": "1"}):
        words, size = word_tokenizer(), len(VOCABULARY)
        shapes = {
            "teacher": (size + models["surplus"], 32, 2, False),
            "student": (size, models["width"], 1, models["tied"]),
        }
        llamas = dict[str, Model]()
        for name, (tokens, width, layers, tied) in shapes.items():
            llama = random_llama(tokens, width, layers=layers, seed=width, tie_word_embeddings=tied).double()
            llama.save_pretrained(directory / name)
            words.save_pretrained(directory / name)
            llamas[name] = Model({n: p.detach() for n, p in llama.named_parameters()}, 2, llama.config.rms_norm_eps)
            settings[name] = directory / name
        chats = _chats(models["chats"], models["seed"])
        settings |= {"data": directory / "chats.jsonl", "data_cache": directory / "cache"}
        settings["data"].write_text("\n".join(map(json.dumps, chats)))
        initial, result = _run(subject, directory, settings)
        student = llamas["student"]
        initial.student = {name.removeprefix("model."): value for name, value in initial.student.items()}
        assert_equal("initial weights", initial.student, student.weights, chosen)
        flat = reference_trainer.Settings(**settings).flat()
        flat["optimizer_options"] = json.loads(flat["optimizer_options"] or "{}")
        rows = chat_rows(chats, words, flat)
        plain = PlainRun(flat, *rows, student, llamas["teacher"], initial.projections)
        compare(directory, plain, initial, result, chosen)


def _chats(count: int, seed: int) -> list[Chosen]:
    """Return conversations of one to three turns. Some answers have the weight 0."""
    draw, chats = random.Random(seed), list[Chosen]()
    for _ in range(count):
        turns: list[Chosen] = []
        for _ in range(draw.randint(1, 3)):
            question, answer = (" ".join(draw.choices(WORDS, k=draw.randint(1, 4))) for _ in range(2))
            turns.append({"role": "user", "content": question})
            turns.append({"role": "assistant", "content": answer, **({"weight": 0} if draw.random() < 0.15 else {})})
        chats.append({"messages": turns})
    return chats


def _decoder(directory: Path, layers: int, width: int, tokens: int, seed: int) -> Model:
    heads = 2 if width == 64 else 1
    config = DecoderConfig(vocab_size=tokens, layers=layers, width=width, heads=heads)
    decoder = with_random_weights(Decoder(config).double(), seed)
    directory.mkdir()
    save_decoder(decoder, directory, {"step": 1})
    return Model({name: value.detach() for name, value in decoder.named_parameters()}, heads)


def _run(subject: Any, directory: Path, settings: Chosen) -> tuple[InitialState, Any]:
    initial, lines = InitialState(), reference_trainer.Lines(io.StringIO())
    files = {"out": directory / "out", "trace": directory / "trace", "hang_after": 0.0}
    run = reference_trainer.Settings(**settings, **files, dtype="float64", device="cpu")
    return initial, subject.distill(run, callbacks=[initial], lines=lines)


def compare(directory: Path, plain: PlainRun, initial: InitialState, result: Any, chosen: Chosen) -> None:
    """Compare trace, held-back metrics, final weights and best checkpoint with the plain loop."""
    events = list(_events(directory / "trace"))
    steps = [event for event in events if event["event"] == "on_step_end"]
    weights_before, best = plain.student.weights, Best(plain.settings)
    for number, expected in enumerate(plain.steps()):
        assert number < len(steps), f"the run ends after {number} steps; expected step {number + 1}; {chosen}"
        for name, value in expected.items():
            assert_equal(f"step {number + 1} of {plain.planned}: {name}", steps[number][name], value, chosen)
        best.update(expected, plain)
    assert_equal("the number of steps", len(steps), number + 1, chosen)
    losses = {event["epoch"]: event["loss"] for event in events if event["event"] == "on_epoch_end"}
    assert_equal("the loss by epoch", losses, plain.epoch_losses, chosen)
    sums, count = plain.evaluation()
    held_back = {name: metric.sum for name, metric in result.held_back.items()}
    assert_equal("the held-back sums", held_back, sums, chosen)
    counts = {name: metric.count for name, metric in result.held_back.items()}
    assert_equal("the held-back tokens", counts, dict.fromkeys(sums, count), chosen)
    assert_equal("the final weights", load_file(directory / "out/model.safetensors"), plain.student.weights, chosen)
    assert_equal("the final projections", dict(initial.modules.named_parameters()), plain.projections, chosen)
    moved = max(float((plain.student.weights[name] - before).abs().max()) for name, before in weights_before.items())
    best.compare(directory / "out/checkpoints", chosen)
    assume(moved > 1e-6)  # with one step, the learning rate may be 0, and nothing is tested


class Best:
    """The best evaluated step so far by `best_metric`, with its score and weights."""

    def __init__(self, settings: Settings) -> None:
        self.metric, self.min_delta = settings["best_metric"], settings["best_min_delta"]
        self.sign = 1 if settings["best_mode"] == "max" else -1
        self.step, self.score, self.weights = 0, -math.inf, dict[str, torch.Tensor]()

    def update(self, step: Chosen, plain: PlainRun) -> None:
        if not step["validation_metrics"]:
            return
        score = self.sign * step["validation_metrics"][self.metric]
        if score > self.score + self.min_delta and math.isfinite(score):
            self.step, self.score, self.weights = step["step"], score, dict(plain.student.weights)

    def compare(self, checkpoints: Path, chosen: Chosen) -> None:
        if not self.step:
            return
        link = checkpoints / "student-best"
        assert_equal("the best checkpoint", link.readlink().name, f"student-step{self.step}", chosen)
        saved = load_file(link / "rank-00000.safetensors").items()
        weights = {name.removeprefix("student.").removeprefix("model."): value for name, value in saved}
        weights = {name: weights[name] for name in self.weights}
        assert_equal("the weights of the best checkpoint", weights, self.weights, chosen)


def _events(path: Path) -> Iterator[Chosen]:
    for line in path.read_text().splitlines():
        event = json.loads(line)
        event["metrics"] = {name: value for name, value in event["metrics"].items() if name not in TIMES}
        yield event


def assert_equal(name: str, seen: Any, expected: Any, chosen: Chosen) -> None:
    """Assert that values, or tensors by name, are equal within `TOLERANCE`, or `TOLERANCE_OF_LLAMA` for chats."""
    tolerance = TOLERANCE_OF_LLAMA if "chats" in chosen["with"] else TOLERANCE
    if isinstance(expected, dict):
        assert set(seen) == set(expected), f"{name} has {sorted(seen)}; expected {sorted(expected)}; {chosen}"
        for key, value in expected.items():
            assert_equal(f"{name} {key}", seen[key], value, chosen)
    elif isinstance(expected, torch.Tensor):
        error = float((seen.detach() - expected.detach()).abs().max()) if seen.shape == expected.shape else math.inf
        size = float(expected.detach().abs().max())
        case = f"{name} differ by up to {error:.3g} from the plain loop, with elements up to {size:.3g}"
        assert error <= tolerance * (1 + size), f"{case}; {chosen}"
    elif isinstance(expected, float):
        is_close = math.isclose(float(seen), expected, rel_tol=tolerance, abs_tol=tolerance)
        assert is_close, f"{name} is {seen}; expected {expected}, as in the plain loop; {chosen}"
    else:
        assert seen == expected, f"{name} is {seen!r}; expected {expected!r}; {chosen}"

"""The oracle of runs with random settings: a whole distillation as one plain training loop in float64.

It is written from docs/trainer-objective.md, docs/trainer-data.md and the help of the settings. The only code that it
shares with the trainer is the order of the rows of an epoch.

Every step is one padded batch with one document a row. So the oracle has no packed attention, no gradient accumulation
and no chunked loss, and faults of these show as differences. Gradients are computed by autograd, and updates by one
optimizer of torch for each parameter.

Shape letters: B documents, T position, W width, H head, D width of a head, P scored positions, V vocabulary.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from falsifiers.support.documents import fewest_rows
from falsifiers.support.oracles import DIVERGENCES
from reference_trainer.data.text import LengthGroups, epoch_order

Weights = Mapping[str, Tensor]
Settings = Mapping[str, Any]
OPTIMIZERS = {"adamw": torch.optim.AdamW, "adafactor": torch.optim.Adafactor}
PACKING_BLOCK = 1000
"""Number of consecutive documents that the trainer packs together."""
ANNEALED = ("temperature", "ce_weight", "kd_weight", "feature_weight")
TEACHER_METRICS = "soft_loss kl_at_T kl_at_1 teacher_loss teacher_entropy teacher_perplexity agreement".split()


@dataclass(frozen=True, slots=True)
class Document:
    """The tokens of a document, and the positions of the predicted tokens."""

    tokens: Sequence[int]
    predicted: Sequence[int]


Row = list[Document]


def text_rows(text: bytes, settings: Settings) -> tuple[list[Row], list[Row]]:
    """Return the training rows and the held-back rows of a text; the last tenth of the text is held back."""
    cut = len(text) - math.ceil(len(text) / 10)
    share = math.floor(cut * (settings["data_share"] or 1))
    return _rows_of_text(text[:share], settings), _rows_of_text(text[cut:], settings)


def _rows_of_text(part: bytes, settings: Settings) -> list[Row]:
    length = settings["length"]
    if settings["documents"] is None:
        pieces = [piece for piece in _pieces(part, length) if len(piece) == length]
    else:
        separator = (settings["separator"] or "\n\n").encode()
        *complete, last = part.split(separator)
        documents = [*(document + separator for document in complete), last]
        pieces = [piece for document in documents for piece in _pieces(document, length) if len(piece) > 1]
    return rows_of([Document(piece, range(1, len(piece))) for piece in pieces], settings)


def _pieces(content: bytes, length: int) -> list[bytes]:
    """Return pieces of at most `length` bytes. Every piece begins with the last byte of the previous piece."""
    return [content[start : start + length] for start in range(0, max(1, len(content) - 1), length - 1)]


def chat_rows(chats: Sequence[Any], words: Any, settings: Settings) -> tuple[list[Row], list[Row]]:
    """Return the training rows and the held-back rows of chats.

    Answers and their end tokens are predicted, except answers of weight 0 and, with `turns` "last", earlier answers.

    Args:
        chats: Objects with `messages`.
        words: A tokenizer with one token for each word, each role and the end of a message.
        settings: The flat settings.
    """
    documents = []
    for chat in chats:
        text: list[str] = []
        predicted: list[int] = []
        for message in chat["messages"]:
            text.append(f"<{message['role']}>")
            content = [*message["content"].split(), "<end>"]
            if message["role"] == "assistant":
                is_last = message is chat["messages"][-1]
                if message.get("weight", 1) and (is_last or settings["turns"] == "every"):
                    predicted += range(len(text), len(text) + len(content))
            text += content
        places = [place for place in predicted if place < settings["length"]]
        documents.append(Document(words.convert_tokens_to_ids(text[: settings["length"]]), places))
    # A conversation whose answers are all cut off is left out.
    documents = [document for document in documents if document.predicted]
    cut = len(documents) - math.ceil(len(documents) / 10)
    held_back, rows = documents[cut:], settings["eval_rows"]
    if 0 < rows < len(held_back):
        held_back = [held_back[number * len(held_back) // rows] for number in range(rows)]
    return rows_of(documents[:cut], settings), rows_of(held_back, settings)


def rows_of(documents: list[Document], settings: Settings) -> list[Row]:
    """Return rows of one document each, or rows of several documents if the setting `documents` is "pack"."""
    if settings["documents"] != "pack":
        return [[document] for document in documents]
    rows: list[Row] = []
    for start in range(0, len(documents), PACKING_BLOCK):
        block = documents[start : start + PACKING_BLOCK]
        packed = fewest_rows([len(document.tokens) for document in block], settings["length"])
        rows += [[block[number] for number in row] for row in packed]
    return rows


@dataclass(frozen=True, slots=True)
class Model:
    """The decoder of the trainer, or a Llama of transformers, by its weights.

    Attributes:
        weights: The weights by the names of the model.
        heads: The number of query heads.
        epsilon: The epsilon of the norms.
    """

    weights: Weights
    heads: int
    epsilon: float = 2.0**-23

    @property
    def is_llama(self) -> bool:
        return "model.norm.weight" in self.weights

    @property
    def layers(self) -> int:
        return 1 + max(layer for name in self.weights if (layer := layer_of(name)) is not None)

    def with_weights(self, weights: Weights) -> "Model":
        return Model(weights, self.heads, self.epsilon)

    def _layer_weights(self, layer: int) -> list[Tensor]:
        """Return the weights of a layer: norm, query, key, value, output; second norm, gate, up, down."""
        if self.is_llama:
            names = "input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj "
            names += "post_attention_layernorm mlp.gate_proj mlp.up_proj mlp.down_proj"
            return [self.weights[f"model.layers.{layer}.{name}.weight"] for name in names.split()]
        names = "attention_norm attention.query_key_value attention.out feed_forward_norm feed_forward.gate_up "
        names += "feed_forward.down"
        norm, qkv, out, second, gate_up, down = (
            self.weights[f"blocks.{layer}.{name}.weight"] for name in names.split()
        )
        return [norm, *qkv.chunk(3), out, second, *gate_up.chunk(2), down]

    def forward(self, tokens_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits [B, T, V], and the hidden states [B, T, W] that the model returns."""
        w = self.weights
        embedding = w["model.embed_tokens.weight" if self.is_llama else "embedding.weight"]
        x = embedding[tokens_BT]
        states = [x]
        for layer in range(self.layers):
            first, query, key, value, out, second, gate, up, down = self._layer_weights(layer)
            normed = self._norm(x, first)
            x = x + self._attention(normed @ query.T, normed @ key.T, normed @ value.T) @ out.T
            normed = self._norm(x, second)
            x = x + (torch.nn.functional.silu(normed @ gate.T) * (normed @ up.T)) @ down.T
            states.append(x)
        x = self._norm(x, w["model.norm.weight" if self.is_llama else "norm.weight"])
        head = w.get("lm_head.weight", embedding) if self.is_llama else w["head.weight"]
        # The hidden states of transformers include the embedding first, and the last one is normalized.
        return x @ head.T, [*states[:-1], x] if self.is_llama else states[1:]

    def _norm(self, x: Tensor, gain: Tensor) -> Tensor:
        if self.is_llama:  # transformers normalizes in float32, also with float64 weights
            return gain * (x.float() * (x.float().square().mean(-1, keepdim=True) + self.epsilon).rsqrt()).to(x)
        return gain * x / (x.square().mean(-1, keepdim=True) + self.epsilon).sqrt()

    def _attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        D, T = query.shape[-1] // self.heads, query.shape[1]
        q, k, v = (part.unflatten(-1, (-1, D)).transpose(1, 2) for part in (query, key, value))
        q, k = self._rotate(q), self._rotate(k)
        k, v = (part.repeat_interleave(self.heads // part.shape[1], dim=1) for part in (k, v))
        scores = q @ k.mT / math.sqrt(D)
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    def _rotate(self, x: Tensor) -> Tensor:
        """Return x [B, H, T, D] with rotary positions: features j, j + D/2 rotated by position · 10000^(-2j/D)."""
        T, D = x.shape[-2:]
        kind = torch.float32 if self.is_llama else torch.float64
        inverse = 1.0 / 10000.0 ** (torch.arange(0, D, 2).to(kind) / D)
        angle = torch.arange(T)[:, None].to(kind) * inverse
        cosine, sine = angle.cos().to(x), angle.sin().to(x)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)


def layer_of(name: str) -> int | None:
    """Return the layer of a weight, from 0; None for a weight outside the layers."""
    for start in ("blocks.", "model.layers."):
        if name.startswith(start):
            return int(name.removeprefix(start).split(".")[0])
    return None


def annealed_value(settings: Settings, name: str, step: int, total: int) -> float:
    """Return the value of an annealed setting, the temperature or a loss weight, in step 1 ... `total`."""
    start, end, first = settings[name], settings[f"{name}_end"], 1
    if end is None:
        return float(start)
    if name != "temperature" and settings["anneal_warmup"]:
        first = settings["anneal_warmup"]
        if step < first:
            return float(start * step / first)
    progress = (step - first) / max(1, total - first)
    return float(start + (end - start) * (progress if settings["anneal"] == "linear" else _cosine(progress)))


def _cosine(progress: float) -> float:
    return (1 - math.cos(math.pi * progress)) / 2


def learning_rate(settings: Settings, step: int, total: int) -> float:
    """Return the learning rate of step 1 ... `total`."""
    peak, shape, end = settings["lr"], settings["schedule"], settings["lr_end"]
    warmup = settings["warmup"]
    if isinstance(warmup, float):
        warmup = math.ceil(warmup * total)
    if step < warmup:
        return float(peak * step / warmup)
    begin = warmup
    if shape == "constant":
        return float(peak)
    if shape == "wsd":
        decay = math.ceil(total / 5) if settings["lr_decay"] is None else settings["lr_decay"]
        begin = max(warmup, total - decay)
    progress = max(0, step - begin) / max(1, total - begin)
    fraction = _cosine(progress) if shape == "cosine" else progress
    return float(peak * (1 + (end - 1) * fraction))


@dataclass
class PlainRun:
    """A run and its state after the last step.

    Attributes:
        settings: The flat settings.
        rows: The training rows.
        held_back: The rows of evaluations.
        student: The student with the weights after the last step, in float64.
        teacher: The teacher, in float64.
        projections: The weights of the projections of hidden states after the last step, such as "0.weight".
        epoch_losses: The mean loss of each epoch so far, by epoch.
    """

    settings: Settings
    rows: list[Row]
    held_back: list[Row]
    student: Model
    teacher: Model
    projections: Weights
    epoch_losses: dict[int, float] = field(default_factory=dict)

    def steps(self) -> Iterator[dict[str, Any]]:
        """Take all steps. After each step, yield the expected fields of its event in the trace.

        At that time `student` and `projections` have the weights after this step.
        """
        s = self.settings
        trained = {f"student.{name}": value for name, value in self.student.weights.items()}
        trained |= {f"projections.{name}": value for name, value in self.projections.items()}
        parameters = {name: value.clone().requires_grad_() for name, value in trained.items()}
        optimizers = {name: self._optimizer(name, parameter) for name, parameter in parameters.items()}
        tokens, best_loss = 0, math.inf
        interval: list[tuple[dict[str, float], int]] = []  # sums and token counts of the steps since the last log
        totals: dict[int, list[float]] = {}
        for step, (epoch, window) in enumerate(self._windows(), start=1):
            annealed = {name: annealed_value(s, name, step, self.planned) for name in ANNEALED}
            model, maps = self._models(parameters)
            documents = [document for row in window for document in row]
            sums, count = self._sums(model, maps, documents, annealed)
            gradients = torch.autograd.grad(sums["loss"] / count, [*parameters.values()], allow_unused=True)
            norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients if gradient is not None))
            factor = 1.0 if s["clip"] is None else min(1.0, s["clip"] / (norm + 1e-6))
            rate = learning_rate(s, step, self.planned)
            for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
                parameter.grad = None if gradient is None else gradient * factor
                optimizers[name].param_groups[0]["lr"] = rate * self._scale(name)
                optimizers[name].step()
            self.student, self.projections = self._models({name: p.detach().clone() for name, p in parameters.items()})
            numbers = {name: float(value.detach()) for name, value in sums.items() if name != "token_accuracy"}
            loss = numbers["loss"] / count
            epoch_total = totals.setdefault(epoch, [0.0, 0])  # nats and tokens
            epoch_total[0], epoch_total[1] = epoch_total[0] + numbers["loss"], epoch_total[1] + count
            self.epoch_losses[epoch] = epoch_total[0] / epoch_total[1]
            tokens, best_loss = tokens + count, min(loss, best_loss)
            expected: dict[str, Any] = {"step": step, "epoch": epoch, "learning_rate": rate, "tokens": tokens}
            expected |= {"loss": loss, "metrics": {}, "validation_metrics": {}, "best_loss": best_loss}
            interval.append((numbers, count))
            if s["log_every"] and step % s["log_every"] == 0:
                metrics = means(interval)
                # The teacher is run only in intervals with a loss weight for it. Without it, the hard loss is measured
                # only in steps with a `ce_weight`, and logged if all steps of the interval have one.
                if not self._has_weight(step, "kd_weight", "feature_weight"):
                    absent = list(TEACHER_METRICS)
                    if not self._has_weight(step, "ce_weight", in_all=True):
                        absent += ["hard_loss", "student_perplexity"]
                    metrics = {name: value for name, value in metrics.items() if name not in absent}
                expected["metrics"] = {**metrics, "gradient_norm": norm, **annealed}
                if not annealed["feature_weight"]:
                    del expected["metrics"]["feature_weight"]
                interval = []
            if s["eval_every"] and step % s["eval_every"] == 0:
                evaluated = means([self.evaluation()])
                expected["validation_metrics"] = {f"eval/{name}": value for name, value in evaluated.items()}
            yield expected

    @property
    def _micro_batches(self) -> int:
        return math.ceil(len(self.rows) / int(self.settings["batch_size"]))

    @property
    def planned(self) -> int:
        """The number of planned steps, which `max_steps` does not change."""
        return int(self.settings["epochs"] * math.ceil(self._micro_batches / self.settings["accumulate"]))

    def _windows(self) -> Iterator[tuple[int, list[Row]]]:
        """Yield the epoch and the rows of every step, from all of its micro-batches."""
        s = self.settings

        def all_windows() -> Iterator[tuple[int, list[Row]]]:
            for epoch in range(1, s["epochs"] + 1):
                order = self._order(epoch)
                size = s["batch_size"] * s["accumulate"]
                for start in range(0, len(order), size):
                    yield epoch, [self.rows[number] for number in order[start : start + size]]

        return itertools.islice(all_windows(), s["max_steps"])

    def _order(self, epoch: int) -> list[int]:
        """Return the order of the rows in an epoch."""
        s = self.settings
        is_padded = s["documents"] == "pad" or (s["documents"] is None and self.teacher.is_llama)
        if s["group_by_length"] and is_padded:
            lengths = torch.tensor([sum(len(document.tokens) for document in row) for row in self.rows])
            groups = LengthGroups(lengths=lengths, batch_size=s["batch_size"])
            return list(groups.order(s["seed"], epoch).tolist())
        return list(epoch_order(s["seed"], epoch, len(self.rows)).tolist())

    def _models(self, values: Weights) -> tuple[Model, Weights]:
        """Return the student and the projections with these values of the parameters, by prefixed name."""
        student, projections = (
            {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
            for prefix in ("student.", "projections.")
        )
        return self.student.with_weights(student), projections

    def _optimizer(self, name: str, parameter: Tensor) -> torch.optim.Optimizer:
        """Return the optimizer of one parameter; norms, biases and embeddings do not decay."""
        s, options = self.settings, dict(self.settings["optimizer_options"] or {})
        kind = OPTIMIZERS.get(s["optimizer"]) or getattr(torch.optim, s["optimizer"].partition(":")[2])
        if s["optimizer"] == "adamw":
            options = {"weight_decay": 0.01, **options}
        if parameter.dim() < 2 or "embed" in name:
            options["weight_decay"] = 0.0
        return kind([parameter], lr=s["lr"], **options)

    def _scale(self, name: str) -> float:
        """Return the factor of the learning rate of a weight: `layer_decay` ** its distance from the head in layers."""
        layers, layer = self.student.layers, layer_of(name.removeprefix("student."))
        number = 0 if "embed" in name else layers + 1 if layer is None else layer + 1
        return float(self.settings["layer_decay"] ** (layers + 1 - number))

    def _sums(
        self, student: Model, projections: Weights, documents: list[Document], annealed: Mapping[str, float]
    ) -> tuple[dict[str, Tensor], int]:
        """Return the sums of losses and metrics over all predicted tokens, and the number of predicted tokens."""
        s, tau = self.settings, annealed["temperature"]
        tokens_BT = torch.zeros(len(documents), max(len(d.tokens) for d in documents), dtype=torch.int64)
        for row, document in enumerate(documents):
            tokens_BT[row, : len(document.tokens)] = torch.tensor(list(document.tokens))
        places = [(row, place) for row, document in enumerate(documents) for place in document.predicted]
        rows_P, places_P = torch.tensor(places).T
        at = rows_P, places_P - 1
        student_BTV, student_states = student.forward(tokens_BT)
        with torch.no_grad():
            teacher_BTV, teacher_states = self.teacher.forward(tokens_BT)
        z, t = self._one_vocabulary(student_BTV[at], teacher_BTV[at])
        labels_P1 = tokens_BT[rows_P, places_P][:, None]
        log_q, log_p = (z / tau).log_softmax(-1), (t / tau).log_softmax(-1)
        log_q1, log_p1 = z.log_softmax(-1), t.log_softmax(-1)
        kl = DIVERGENCES["forward_kl"].textbook
        hard = -log_q1.gather(-1, labels_P1).sum()
        soft = tau**2 * DIVERGENCES[s["divergence"]].textbook(log_p, log_q, s["beta"]).sum()
        # A term of weight 0 is left out: if it is infinite, 0 * inf would be NaN.
        loss = 0 * hard
        for weight, term in ((annealed["ce_weight"], hard), (annealed["kd_weight"], soft)):
            loss = loss + weight * term if weight else loss
        sums = {"hard_loss": hard, "soft_loss": soft}
        sums |= {"kl_at_T": kl(log_p, log_q, 0.0).sum(), "kl_at_1": kl(log_p1, log_q1, 0.0).sum()}
        sums["teacher_loss"] = -log_p1.gather(-1, labels_P1).sum()
        sums["teacher_entropy"] = -torch.special.xlogy(log_p1.exp(), log_p1.exp()).sum()
        sums["agreement"] = (z.argmax(-1) == t.argmax(-1)).sum()
        if annealed["feature_weight"]:
            sums["feature"] = self._feature(projections, student_states, teacher_states, at)
            loss = loss + annealed["feature_weight"] * sums["feature"]
        return {"loss": loss, **sums, "token_accuracy": (z.argmax(-1) == labels_P1[:, 0]).sum()}, len(places)

    def _one_vocabulary(self, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of student and teacher, cut or padded to one vocabulary."""
        match self.settings["share_vocabulary"]:
            case "truncate":
                return z, t[:, : z.shape[1]]
            case "truncate-student":
                return z[:, : t.shape[1]], t
            case "pad":
                size = max(z.shape[1], t.shape[1])
                z, t = (torch.nn.functional.pad(x, (0, size - x.shape[1]), value=-math.inf) for x in (z, t))
        return z, t

    def _feature(self, projections: Weights, student: list[Tensor], teacher: list[Tensor], at: Any) -> Tensor:
        """Return the distance of hidden states, summed over the positions `at` and averaged over pairs of layers."""
        distances = []
        for number, pair in enumerate(self.settings["feature_layers"].split(",")):
            i, j = map(int, pair.split(":"))
            h, g = student[i][at], teacher[j][at]
            if f"{number}.weight" in projections:
                h = h @ projections[f"{number}.weight"].T + projections[f"{number}.bias"]
            if self.settings["feature_distance"] == "l2":
                distances.append((h - g).square().mean(-1).sum())
            else:
                distances.append((1 - torch.nn.functional.cosine_similarity(h, g, dim=-1)).sum())
        return torch.stack(distances).mean()

    @torch.no_grad()
    def evaluation(self) -> tuple[dict[str, float], int]:
        """Return the sums on the held-back rows with the present weights, and the number of predicted tokens."""
        annealed = {name: annealed_value(self.settings, name, self.planned, self.planned) for name in ANNEALED}
        documents = [document for row in self.held_back for document in row]
        sums, count = self._sums(self.student, {}, documents, {**annealed, "feature_weight": 0.0})
        return {name: float(value) for name, value in sums.items() if name != "loss"}, count

    def _has_weight(self, logged: int, *names: str, in_all: bool = False) -> bool:
        """Return whether any step of a logging interval, or with `in_all` each step, has a loss weight above 0.

        logged: the last step of the interval. names: the loss weights; one suffices.
        """
        steps = range(logged - self.settings["log_every"] + 1, logged + 1)
        weights = [any(annealed_value(self.settings, name, step, self.planned) for name in names) for step in steps]
        return all(weights) if in_all else any(weights)


def means(interval: list[tuple[dict[str, float], int]]) -> dict[str, float]:
    """Return the means of metrics over the tokens of several steps, and the perplexities of student and teacher.

    A metric that one of the steps lacks is left out.
    """
    totals: dict[str, float] = defaultdict(float)
    for sums, _ in interval:
        for name, value in sums.items():
            totals[name] += value
    common = set.intersection(*(set(sums) for sums, _ in interval))
    count = sum(count for _, count in interval)
    metrics = {name: totals[name] / count for name in common}
    for model, loss in (("student", "hard_loss"), ("teacher", "teacher_loss")):
        metrics[f"{model}_perplexity"] = math.exp(min(metrics[loss], 20))
    return metrics

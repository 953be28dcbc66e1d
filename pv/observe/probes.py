"""Probes: forwards of a model with changed inputs, in a forked copy of the process, so the training is not affected.

A probe determines the inputs that an output depends on: whether a logit depends on the token that it predicts, on
padding, or on another row of the batch. The copy repeats the first call of every model, always with the same random
numbers, sends its results through a pipe, and exits without clean-up. If no copy can be made, the reason is recorded.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import random
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Optional

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .tokens import INTEGERS, Call, _as_rows, _real_tokens, _time_axes, floats_in, is_text, shifts, trailing
from .trace import Event

if TYPE_CHECKING:
    from .observer import Observer

LIMIT_SECONDS = 20.0
"""Time in seconds after which the copy is killed. Results that were sent before this time are used."""
HARMLESS_THREADS = ("TMonitor", "QueueFeederThread", "_AsyncWriterThread")
"""Names or classes of threads that are nearly always idle, so a process with these threads can be forked.

They are the monitor of tqdm, the feeder of a queue to data workers, and a TensorBoard writer.
"""
MAX_ADVANCES = 20_000
"""Largest number of advances (calls of `scheduler.step()`) for which the factor of a schedule is computed."""
VISIBLE_CHANGE = 1e-3
"""Smallest change of an output that rounding cannot explain, relative to the standard deviation of the outputs."""
EQUAL_TOLERANCE = 1e-6
"""Relative and absolute tolerance within which two outputs count as equal."""
Head = tuple[int, Optional[int]]
"""The number of classes, and the position of the logits among the outputs of the model (None if it is not known)."""
BATCH_NORM = nn.modules.batchnorm._BatchNorm
"""The base class of all layers of batch normalization."""


def run(observer: Observer) -> None:
    """Probe the models whose first call is stored, and add a `probe` event for every result.

    If a probe is impossible or the copy fails, add a `no_probe` event with the reason. Do nothing if all models have
    been probed before.

    Args:
        observer: The observer of this process.
    """
    calls = [call for call in observer.first_calls.values() if call is not None]
    if not calls and observer.first_calls:
        return
    observer.first_calls.update(dict.fromkeys(observer.first_calls))  # None: the model has been probed
    reason = _obstacle(observer, calls)
    lines: list[Event] = []
    if not reason:
        lines, reason = _in_copy(lambda send: _probe(calls, send))
    for line in lines:
        observer.add("probe", **line)
    if reason:
        observer.add("no_probe", reason=reason)


def run_schedules(observer: Observer) -> None:
    """Evaluate the functions of new `LambdaLR` in a copy of this process, and add a `planned` event for each schedule.

    If the process cannot be copied, add nothing, and do not evaluate these schedules later.

    Args:
        observer: The observer of this process.
    """
    lambdas = observer.schedules.new_lambdas()

    def evaluate(send: Callable[[object], None]) -> None:
        for number, functions in lambdas.items():
            send(_plan(number, functions))

    if lambdas and not _obstacle_of_process(observer):
        lines, _ = _in_copy(evaluate)
        for line in lines:
            observer.add("planned", **line)


def _plan(number: int, functions: list[Callable[[int], Any]]) -> Event:
    """Return the fields of a `planned` event: where the factor of a schedule ends, and where the factor is largest.

    A factor ends at the first advance at which the factor is 0, at the last advance before the factor rises again, or
    at the last advance that changes the factor. A factor that still changes after half of `MAX_ADVANCES` advances has
    no end. For several functions, every field is the largest of the values of the functions.

    Args:
        number: The number of the schedule.
        functions: The functions of the schedule. Each returns the factor of the learning rate after n advances.

    Returns:
        scheduler: The number of the schedule.
        end: The number of advances at the end of the factor; 0 if it has no end.
        peak: The number of advances at which the factor is largest.
        last: The factor at its end, divided by its largest value.
    """
    end, peak, factor = 0, 0, 0.0
    for function in functions:
        values: list[float] = []
        largest = last = 0  # the advances of the largest value and of the last change
        for n in range(MAX_ADVANCES):
            try:
                values.append(float(function(n)))
            except (ArithmeticError, LookupError, TypeError, ValueError):
                break  # `n` is beyond the end of the schedule: for example, a fractional power of a negative number
            largest = n if values[n] > values[largest] else largest
            # Smaller changes are rounding errors.
            if n and abs(values[n] - values[n - 1]) > 1e-9 * abs(values[largest]):
                if last > largest and values[n] > values[n - 1] and n > 1:
                    break  # the factor rises again, so it ended at `last`
                last = n
            if n and 0 < values[largest] and values[n] <= 1e-9 * values[largest]:
                break
        # An exponential decay has no end: its changes become smaller and smaller, so the last change above 1e-9 is less
        # than 1e-8. The last change of a schedule with an end is larger.
        if last and last < MAX_ADVANCES // 2 and abs(values[last] - values[last - 1]) > 1e-8 * abs(values[largest]):
            end, peak = max(end, last), max(peak, largest)
            factor = max(factor, values[last] / values[largest])
    return {"scheduler": number, "end": end, "peak": peak, "last": factor}


def _obstacle(observer: Observer, calls: list[Call]) -> str:
    """Return the reason why a copy of this process cannot repeat the calls; "" if the copy can."""
    reason = _obstacle_of_process(observer)
    if reason:
        return reason
    if not calls:
        return "no call of a model in training could be repeated"
    states = [t for call in calls for t in (*call.module.parameters(), *call.module.buffers(), *_arguments(call))]
    devices = {tensor.device.type for tensor in states}
    if not devices <= {"cpu"}:
        return f"the model is on {', '.join(sorted(devices))}"
    if any(tensor.layout == torch.strided and tensor.is_shared() for tensor in states):
        return "the model or its inputs are in memory that processes share"
    return ""


def _obstacle_of_process(observer: Observer) -> str:
    """Return the reason why this process cannot be copied; "" if the process can be copied."""
    if not observer.options.probes:
        return "probes are switched off"
    if not sys.platform.startswith("linux"):
        return "a copy of the process can only be made on Linux"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return "a copy of one of several ranks cannot be made"
    if torch.cuda.is_initialized():
        return "a process that uses CUDA cannot be copied"
    threads = [t for t in threading.enumerate() if t is not threading.main_thread()]
    threads = [t for t in threads if not {t.name, type(t).__name__} & set(HARMLESS_THREADS)]
    if threads or threading.current_thread() is not threading.main_thread():
        return f"a process with several threads cannot be copied: {', '.join(sorted(t.name for t in threads))[:100]}"
    return ""


def _in_copy(function: Callable[[Callable[[object], None]], None]) -> tuple[list[dict[str, object]], str]:
    """Run a function in a forked copy of this process.

    Args:
        function: Called in the copy with a function that sends a JSON value to this process.

    Returns:
        The values that were sent, and the reason why some values may be missing ("" if the function finished).
    """
    # fork, not spawn: a forked copy has the model, the batch and all random states without a transfer, and can affect
    # this process only through the pipe. `_obstacle_of_process` excludes threads and CUDA, which do not survive a fork.
    reader, writer = os.pipe()
    # The tokenizers of Hugging Face print a warning in a forked process, unless this variable is set.
    is_set = "TOKENIZERS_PARALLELISM" in os.environ
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        child = os.fork()
    except OSError as error:
        os.close(reader)
        os.close(writer)
        return [], f"the process cannot be copied: {error.strerror}"
    finally:
        if not is_set:
            del os.environ["TOKENIZERS_PARALLELISM"]
    if child == 0:
        try:
            os.close(reader)
            _isolate()
            function(lambda value: _send(writer, value))
            _send(writer, None)
        finally:
            os._exit(0)  # skip the `atexit` functions, and do not flush the buffers that the copy inherited
    os.close(writer)
    # A forward in the copy may hang, for example at a lock that another thread held at the fork. Kill the copy after
    # the time limit.
    data, end = b"", time.monotonic() + LIMIT_SECONDS
    while True:
        remaining = end - time.monotonic()
        if remaining <= 0 or not select.select([reader], [], [], remaining)[0]:
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(reader, 65536)
        if not part:
            break
        data += part
    os.close(reader)
    os.waitpid(child, 0)
    lines = [json.loads(line) for line in data.split(b"\n")[:-1]]
    if lines and lines[-1] is None:
        return lines[:-1], ""
    return lines, f"the copy of the process failed, or did not end by itself within {LIMIT_SECONDS:g} s"


def _send(writer: int, value: object) -> None:
    """Write a value as a line of JSON into a pipe."""
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(writer, data) :]


def _isolate() -> None:
    """Isolate the copy: no observation, no input or output, no garbage collection, one thread, and a time limit."""
    from . import observer

    observer.current._busy += 1
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(LIMIT_SECONDS) + 5)
    gc.disable()  # the finalizer of a data loader would stop the workers of the parent process
    logging.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    torch.set_num_threads(1)  # a fork does not copy the threads of OpenMP
    torch.set_grad_enabled(False)


def _probe(calls: list[Call], send: Callable[[object], None]) -> None:
    """Run all probes on every call, and send the fields of their `probe` events."""
    for call in calls:
        for module in call.module.modules():
            if isinstance(module, BATCH_NORM):
                module.eval()  # in training mode, batch statistics make every row depend on all other rows
        base: Optional[_BaseForward] = None
        for probe in (_attention, _future, _padding, _rows):
            try:
                base = base or _BaseForward(call)
                fields: Optional[Event] = probe(call, base)
            except Exception as error:
                fields = {"failed": f"{type(error).__name__}: {error}"[:200]}
            if fields is not None:
                name = probe.__name__[1:]  # "future" for `_future`
                send({"probe": name, "model": call.model, "at": call.at, "failed": None, **fields})


class _Recorder(TorchFunctionMode):
    """Records the operations of a forward that mix positions, and optionally changes the embeddings of some tokens.

    Args:
        tokens: The tokens of the call, [R, C]; None to change no embedding.
        is_changed: A mask, [R, C]: True at the tokens whose embeddings are changed.
    """

    def __init__(self, tokens: Optional[Tensor] = None, is_changed: Optional[Tensor] = None) -> None:
        super().__init__()
        self.tokens, self.is_changed = tokens, is_changed
        self.lookups = 0
        """Number of embedding lookups whose results were changed."""
        self.loss_inputs: list[Tensor] = []
        """The logits or log-probabilities that cross-entropies got, or from which `gather` read one element each."""
        self.attention = {"causal": 0, "full": 0}
        """Number of causal self-attentions, and number of self-attentions in which a position sees later positions."""
        self.over_queries = 0
        """Number of softmaxes of square matrices over the second-to-last dimension, which may be the queries."""
        self.heads: set[tuple[int, ...]] = set()
        """For every self-attention on tensors of four dimensions: (number of heads, number of positions)."""
        self.views: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
        """Shapes before and after every view that splits or merges heads without a transpose of positions and heads."""
        self.softmaxes: list[tuple[Tensor, int]] = []
        """The input and the dimension of every softmax."""
        self.masks = 0
        """Number of float masks of attention that are not causal."""
        self.masks_of_ones = 0
        """Number of causal or padding masks of floats 0 and 1. Attention adds float masks, so these hide nothing."""
        self.names: set[str] = set()
        """The names of all functions that were called."""
        self.sequences: Counter[int] = Counter()
        """By length: the number of calls of a recurrent layer or an attention with a batch of one sequence."""
        self.states: object = None
        """The states of the random generators of torch (CPU) and of `random` after the forward."""

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        self.names.add(name)
        first = args[0] if args else kwargs.get("input")
        if name in ("cross_entropy", "nll_loss"):
            self.loss_inputs.append(first)
        result = func(*args, **kwargs)
        if name in ("view", "reshape") and isinstance(result, Tensor):
            self._record_view(tuple(first.shape), tuple(result.shape))
        if name == "gather" and isinstance(result, Tensor) and result.dim() >= 3 and result.shape[-1] == 1:
            # A handwritten loss gathers the log-probabilities of the labels.
            self.loss_inputs.append(first)
        if name == "scaled_dot_product_attention":
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            arguments = {**dict(zip(names, args)), **kwargs}
            query, key = arguments["query"].shape[-2], arguments["key"].shape[-2]
            self.sequences[query] += arguments["query"].dim() == 4 and len(arguments["query"]) == 1
            if query == key and arguments["query"].dim() == 4:
                self.heads.add((arguments["query"].shape[1], query))
            self._record_attention(query, key, arguments.get("attn_mask"), bool(arguments.get("is_causal")))
            self._record_mask(arguments.get("attn_mask"))
        elif name in ("gru", "lstm", "rnn_relu", "rnn_tanh") and first.dim() == 3:
            self.sequences[max(first.shape[:2])] += 1 in first.shape[:2]
        elif name == "multi_head_attention_forward":
            self.sequences[args[0].shape[0]] += args[0].dim() == 3 and args[0].shape[1] == 1
            self._record_attention(args[0].shape[0], args[1].shape[0], kwargs.get("attn_mask"), False)
            self._record_mask(kwargs.get("attn_mask"))
            self._record_mask(kwargs.get("key_padding_mask"), is_padding=True)
        elif name == "softmax" and isinstance(result, Tensor) and result.dim() >= 2:
            dim = kwargs["dim"] if "dim" in kwargs else args[1] if len(args) > 1 else None
            # Without `dim`, torch uses dimension 0 of three dimensions, and dimension 1 of two or four.
            dim = (0 if result.dim() == 3 else 1) if dim is None else dim % result.dim()
            self.softmaxes.append((first, dim))
            if result.dim() >= 3 and result.shape[-1] == result.shape[-2] >= 4:
                sees_later = bool((result > 0).triu(1).any())
                self.over_queries += dim == result.dim() - 2
                self.heads.update({(result.shape[1], result.shape[2])} if result.dim() == 4 else ())
                self._record_attention(result.shape[-2], result.shape[-1], None, not sees_later)
        elif name in ("embedding", "__getitem__") and self.tokens is not None and isinstance(result, Tensor):
            self._add_noise(args, kwargs, result)
        return result

    def has_softmax_over_rows(self, rows: int) -> bool:
        """Return whether a softmax runs over the rows of the batch (dimension 0), probably by mistake.

        A softmax over rows is taken as intended in two cases: its input has one score for every pair of rows, such as
        pairs of images and texts; or a softmax over another dimension has the same input, such as in slot attention.
        """
        return any(
            dim == 0
            and len(scores) == rows
            and scores.shape != (rows, rows)
            and all(other_dim == 0 or other is not scores for other, other_dim in self.softmaxes)
            for scores, dim in self.softmaxes
        )

    def _record_view(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Record the shapes of a view from [B, ..., H, T, D] to [B, T, ... * H * D], or in the other direction."""
        merged, split = sorted((before, after), key=len)
        if len(merged) == 3 and len(split) > 3 and min(split[1:]) > 1 and split[-2] not in split[1:-2]:
            if merged == (split[0], split[-2], math.prod(split[1:-2]) * split[-1]):
                self.views.add((before, after))

    def _record_mask(self, mask: Optional[Tensor], is_padding: bool = False) -> None:
        """Count a float mask of attention that is not causal, or that hides nothing because its values are 0 and 1."""
        if mask is None or not mask.is_floating_point() or mask.requires_grad:
            return
        zeros, ones = mask == 0, mask == 1
        self.masks += mask.dim() < 2 or bool((mask > -1e4).triu(1).any())
        if bool((zeros | ones).all()) and bool(zeros.any()) and bool(ones.any()):
            # A padding mask is the product of a mask of the queries and a mask of the keys, and a causal mask is a
            # triangle. Another mask may be a bias for pairs of positions, such as the edges of a graph.
            is_padding = is_padding or mask.dim() < 2 or bool((mask == mask.amax(-2, True) * mask.amax(-1, True)).all())
            self.masks_of_ones += is_padding or not bool(mask.triu(1).any())

    def _record_attention(self, query: int, key: int, mask: Optional[Tensor], causal: bool) -> None:
        """Count a self-attention as causal or full.

        Args:
            query: The number of queries. Fewer than 4 queries are not counted.
            key: The number of keys. If this number differs from the number of queries, nothing is counted.
            mask: The mask of the attention.
            causal: Whether the attention is causal even without the mask.
        """
        if query != key or query < 4:
            return
        if mask is not None and mask.dim() >= 2 and mask.shape[-2:] == (query, key):
            # A float mask is added to the scores: -inf, or a large negative number, hides a position.
            visible = mask if mask.dtype == torch.bool else mask > -1e4
            # In a mask of `nn.MultiheadAttention`, True hides a position, so both meanings of True are tried.
            causal = causal or any(not bool(part.triu(1).any()) for part in (visible, ~visible))
        self.attention["causal" if causal else "full"] += 1

    def _add_noise(self, args: tuple[object, ...], kwargs: dict[str, object], result: Tensor) -> None:
        """If the result of an operation is the embeddings of `tokens`, add noise where `is_changed` is True."""
        assert self.tokens is not None and self.is_changed is not None
        for indices in (part for part in (*args, *kwargs.values()) if isinstance(part, Tensor)):
            for tokens, mask in ((self.tokens, self.is_changed), (self.tokens.t(), self.is_changed.t())):
                if indices.shape == tokens.shape and indices.dtype in INTEGERS and bool((indices == tokens).all()):
                    if result.dim() == 3 and result.is_floating_point():
                        self.lookups += 1
                        # A separate generator: the noise must not change the random numbers that the model draws.
                        noise = torch.randn(result.shape, generator=torch.Generator().manual_seed(7))
                        result[mask] += noise.to(result.dtype)[mask] * (result.std() + 0.1)
                    return


def _forward(call: Call, recorded: _Recorder) -> list[Tensor]:
    """Repeat the call with fixed seeds, and return the float tensors in the outputs of the model."""
    torch.manual_seed(0)
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    with recorded:
        outputs = list(floats_in(call.module(*call.args, **call.kwargs)))
    recorded.states = (torch.get_rng_state().tolist(), random.getstate())
    return outputs


class _BaseForward:
    """The forward of an unchanged call, which all probes share.

    Attributes:
        outputs: The float tensors in the outputs.
        recorded: The recorded operations of the forward.
        recurrent: Number of calls of recurrent layers: "causal" in one direction, "full" in both directions.
        repeats: Whether a second forward has the same outputs.
    """

    def __init__(self, call: Call) -> None:
        self.recurrent = _count_recurrent(call)
        self.recorded = _Recorder()
        self.outputs = _forward(call, self.recorded)
        self.recurrent = dict(self.recurrent)  # a copy, because the hooks also count in later forwards
        self.repeats = _same(self.outputs, _forward(call, _Recorder()))


def _forward_with(tensor: Tensor, changed: Tensor, call: Call, recorded: _Recorder) -> list[Tensor]:
    """Repeat the call with other values in one of its arguments, restore the argument, and return the outputs.

    Args:
        tensor: The argument, which is changed in place.
        changed: The other values.
        call: The call.
        recorded: Records the operations of the forward.
    """
    before = tensor.clone()
    tensor.copy_(changed)
    try:
        return _forward(call, recorded)
    finally:
        tensor.copy_(before)


def _change_of(before: Tensor, after: Tensor) -> Tensor:
    """Return the absolute change of every element, divided by the standard deviation of all elements of `before`."""
    # The division makes one threshold suitable for logits, probabilities and features.
    spread = float(before.double().std()) if before.numel() > 1 else 1.0
    return (before.double() - after.double()).abs() / (spread + 1e-12)


def _same(before: list[Tensor], after: list[Tensor]) -> bool:
    """Return whether two forwards have the same outputs; NaN equals NaN."""
    return len(before) == len(after) and all(
        a.shape == b.shape
        and torch.allclose(a.double(), b.double(), rtol=EQUAL_TOLERANCE, atol=EQUAL_TOLERANCE, equal_nan=True)
        for a, b in zip(before, after)
    )


NOT_REPEATABLE = {"failed": "two equal forwards have different outputs, or random numbers depend on the inputs"}
"""The fields of the event if a changed output may be caused by random numbers instead of the changed input."""


def _replace_tokens(tokens: Tensor, kept: Optional[int] = None) -> Optional[Tensor]:
    """Replace every token of a batch, except the token `kept`, by a different token of the same batch.

    Return None if the batch has fewer than two different tokens besides `kept`.
    """
    # A token that is not in the batch may be out of range of the embedding, or have a special meaning.
    kinds = tokens.unique()
    if kept is not None:
        kinds = kinds[kinds != kept]
    if len(kinds) < 2:
        return None
    position = torch.searchsorted(kinds, tokens.clamp(max=int(kinds[-1])))
    # Move by about half of the sorted tokens. The shift is less than their number, so every token changes.
    changed = kinds[(position + len(kinds) // 2 + (len(kinds) > 2)) % len(kinds)]
    return changed if kept is None else torch.where(tokens == kept, tokens, changed)


def _pad_of(tokens: Tensor) -> Optional[int]:
    """Return the token that is repeated most often at the end of a row; None if no row ends with a repeated token."""
    run_lengths = trailing(tokens)
    return int(tokens[run_lengths.argmax(), -1]) if int(run_lengths.max()) > 1 else None


def _language(call: Call, offset: int = 1) -> list[tuple[Tensor, Tensor, Tensor, Head, int]]:
    """Return the arguments of a call that are texts, if the labels of a loss are the shifted tokens of the text.

    Args:
        call: The call, with the labels of its losses.
        offset: 1 if the labels are the next tokens, 0 if the labels are the tokens themselves.

    Returns:
        For every text: its tokens, its labels, the mask of scored labels, the head, and the axis of time.
    """
    texts = []
    for labels, scored, classes, output in call.losses:
        for tokens in call.matrices():
            if tokens.dtype not in INTEGERS or not _time_axes(tokens, labels) or not is_text(tokens):
                continue
            label_rows, is_scored = _as_rows(labels, tokens.shape), _as_rows(scored, tokens.shape)
            for shift in shifts(tokens, label_rows, is_scored):
                equal = {by: same / total if total else 0.0 for by, (same, total) in shift["counts"].items()}
                enough = shift["counts"]["1"][1] >= 16 and int(label_rows[is_scored].unique().numel()) >= 3
                if enough and equal[str(offset)] >= 0.95 and equal[str(1 - offset)] < 0.8 and not shift["wraps"]:
                    texts.append((tokens, label_rows, is_scored, (classes, output), shift["axis"]))
    return texts


def _logits(outputs: list[Tensor], recorded: _Recorder, tokens: Tensor, labels: Tensor, head: Head) -> Optional[Tensor]:
    """Return the logits of the labels, [R, C, V]; None if no tensor or several tensors have the size of the logits.

    The outputs of the model are searched first, then the inputs of its losses.
    """
    rows, columns = labels.shape
    classes, output = head
    for group in (outputs if output is None else outputs[output : output + 1], recorded.loss_inputs):
        sizes = (tokens.numel() * classes, labels.numel() * classes)
        if any(t.dim() > 2 and t.shape[1] == t.shape[-1] == classes for t in group):
            return None  # ambiguous: either dimension may be the classes
        # The loss functions of torch expect the classes in dimension 1.
        ordered = [t.movedim(1, -1) if t.dim() > 2 and t.shape[1] == classes else t for t in group]
        logits = {t.data_ptr(): t for t in ordered if t.dim() >= 2 and t.shape[-1] == classes and t.numel() in sizes}
        if len(logits) > 1:
            return None
        for tensor in logits.values():
            if tensor.numel() == labels.numel() * classes:
                return tensor.reshape(rows, columns, classes)
            return tensor.reshape(*tokens.shape, classes)[:rows, :columns]
    return None


def _attention(call: Call, base: _BaseForward) -> Optional[Event]:
    """Return the numbers of causal and full self-attentions, the numbers of float masks, and views that mix heads."""
    recorded = base.recorded
    if not sum(recorded.attention.values()) and not recorded.masks_of_ones:
        return None
    # The split shape of a view ends with (heads, positions, width of a head).
    mixed = [pair for pair in sorted(recorded.views) if max(pair, key=len)[-3:-1] in recorded.heads]
    return {
        "attention": recorded.attention,
        "masks": recorded.masks,
        "masks_of_ones": recorded.masks_of_ones,
        "mixed_heads": [list(map(list, pair)) for pair in mixed][:4],
    }


def _future(call: Call, base: _BaseForward) -> Optional[Event]:
    """Change the tokens of a row from one position on, and return how much the logits before this position change.

    Tokens of padding are not changed.
    """
    texts = [(1, text) for text in _language(call)] or [(0, text) for text in _language(call, 0)[:1]]
    results = [result for offset, text in texts if (result := _future_of(call, base, offset, *text)) is not None]
    # If a text changes no logit, the model only computes labels from this argument.
    results = [result for result in results if result.get("late", 1.0) > EQUAL_TOLERANCE] or results
    # In a copy task, the inputs of the encoder and of the decoder contain the same text. Only the input of the decoder
    # must not change earlier logits, so the smaller change is returned.
    return min(results, key=lambda result: result.get("early", -1.0), default=None)


def _future_of(
    call: Call, base: _BaseForward, offset: int, tokens: Tensor, labels: Tensor, scored: Tensor, head: Head, axis: int
) -> Optional[Event]:
    """Run the probe `_future` on one text. The parameters after `offset` are one text as `_language` returns it."""
    recorded = base.recorded
    before = _logits(base.outputs, recorded, tokens, labels, head)
    if before is None:
        return {"failed": "no single output has the shape of the logits"}
    if not base.repeats:
        return NOT_REPEATABLE
    scored_rows = scored if axis else scored.t()
    row = int(scored_rows.sum(1).argmax())
    positions = scored_rows[row].nonzero().reshape(-1).tolist()
    pad = _pad_of(tokens if axis else tokens.t())
    replaced = _replace_tokens(tokens, pad)
    if replaced is None or len(positions) < 3:
        return None
    # `at` is after the middle of the scored positions. Logits before `at` may depend only on tokens before `at`, which
    # are unchanged, so these logits must not change.
    at = positions[len(positions) // 2] + 1
    changed = tokens.clone()
    rows, new_rows = (changed, replaced) if axis else (changed.t(), replaced.t())
    rows[row, at:] = new_rows[row, at:]
    changed_forward = _Recorder()
    after = _logits(_forward_with(tokens, changed, call, changed_forward), changed_forward, tokens, labels, head)
    if after is None or after.shape != before.shape:
        return {"failed": "the shape of the logits depends on the tokens"}
    if changed_forward.states != recorded.states:
        return NOT_REPEATABLE
    change = _change_of(before, after).amax(-1)
    change = (change if axis else change.t())[row]
    early = [float(change[p]) for p in positions if p < at]
    # If only the logits just before `at` change, a window reaches too far, such as in a convolution with wrong padding.
    # A model that encodes the whole text changes all logits. `clean` is the number of first logits without a change.
    clean = 0
    while clean < len(early) and early[clean] <= EQUAL_TOLERANCE:
        clean += 1
    return {
        "offset": offset,
        "token": at,
        "early": max(early),
        "own": early[-1],
        "same": float(change[at]) if at < len(change) else 0.0,
        "late": float(change[at:].max()) if at < len(change) else 0.0,
        "clean": clean,
        "reach": len(early) - clean,
        "local": clean >= 2 and all(value > EQUAL_TOLERANCE for value in early[clean:]),
        "attention": recorded.attention,
        "over_queries": recorded.over_queries,
        "recurrent": base.recurrent,
    }


def _count_recurrent(call: Call) -> dict[str, int]:
    """Register hooks that count the calls of recurrent layers from now on, and return the counts by direction."""
    counts = {"causal": 0, "full": 0}

    def count(module: nn.Module, args: object) -> None:
        counts["full" if getattr(module, "bidirectional", False) else "causal"] += 1

    for module in call.module.modules():
        if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            module.register_forward_pre_hook(count)
    return counts


def _padding(call: Call, base: _BaseForward) -> Optional[Event]:
    """Change embeddings of padding, then the padding mask, then embeddings of the first real tokens.

    Return the changes of the outputs of real tokens, and whether the mask is used.
    """
    matrices = call.matrices()
    tokens = next((t for t in matrices if t.dtype in INTEGERS and is_text(t)), None)
    if tokens is None:
        return None
    mask, real = None, None
    for argument in matrices:
        if argument is not tokens and argument.shape == tokens.shape:
            candidate = _real_tokens(argument)
            if candidate is not None and tokens[~candidate].unique().numel() == 1:
                mask, real = argument, candidate
    if real is None:
        # Without a mask, the padding is the `padding_idx` of an embedding at the ends of the rows.
        padding_indices = {m.padding_idx for m in call.module.modules() if isinstance(m, nn.Embedding)}
        pad = _pad_of(tokens)
        if pad is None or pad not in padding_indices:
            return None
        lengths = torch.where(tokens[:, -1] == pad, trailing(tokens), torch.zeros(len(tokens), dtype=torch.long))
        real = torch.arange(tokens.shape[1]) < tokens.shape[1] - lengths[:, None]
        if bool((tokens[real] == pad).any()) or bool(real.all()):
            return None
    if not base.repeats:
        return NOT_REPEATABLE
    changed = _Recorder(tokens, ~real)
    after = _forward(call, changed)
    if changed.states != base.recorded.states:
        return NOT_REPEATABLE
    if not changed.lookups:
        return {"failed": "the lookup of the tokens' embeddings was not seen"}
    changes = _by_position(base.outputs, after, tokens)
    if changes is None:
        return {"failed": "no output has a row for each example"}
    change, pooled = changes
    padded = ~real.all(1) & real.any(1)
    fields: Event = {
        "mask": mask is not None,
        "pooled": pooled,
        "real": _largest(change[padded] if pooled else change[real & padded[:, None]]),
        "attention": base.recorded.attention,
        "mask_used": None,
        "other_tokens": None,
    }
    if mask is not None:
        # First mark all positions as real, then invert the mask. If neither changes the outputs, the mask is not used.
        all_real = mask[real].reshape(-1)[0].expand_as(mask)
        unmasked = _forward_with(mask, all_real, call, _Recorder())
        inverted = _forward_with(mask, 1 - mask if mask.dtype != torch.bool else ~mask, call, _Recorder())
        fields["mask_used"] = not _same(base.outputs, unmasked) or not _same(base.outputs, inverted)
    if not pooled:
        # Change the first real token of every padded row. If the outputs of the other real tokens do not change, the
        # model hides this token: the mask is inverted.
        is_first = torch.zeros_like(real)
        is_first[torch.arange(len(real)), real.long().argmax(1)] = True
        changes = _by_position(base.outputs, _forward(call, _Recorder(tokens, is_first & padded[:, None])), tokens)
        if changes is not None:
            fields["other_tokens"] = _largest(changes[0][real & ~is_first & padded[:, None]])
    return fields


def _by_position(base: list[Tensor], after: list[Tensor], tokens: Tensor) -> Optional[tuple[Tensor, bool]]:
    """Compute how much the first output changes that has values for every position, or for every row.

    Returns:
        The change at every position, [R, C], and False; or the change of every row, [R], and True; or None if no output
        has values for every position or row.
    """
    rows, columns = tokens.shape
    for output, changed in zip(base, after):
        if output.shape != changed.shape or output.dim() < 2 or not output.numel():
            continue
        if output.dim() == 3 and output.shape[1] == output.shape[2]:
            continue  # ambiguous: dimension 1 or 2 may be the positions
        change = _change_of(output, changed)
        if output.dim() == 3 and output.shape[:2] == tokens.shape:
            return change.amax(-1), False
        if output.dim() == 2 and output.shape[0] == rows * columns:
            return change.amax(-1).reshape(rows, columns), False
        if output.dim() == 2 and output.shape == tokens.shape:
            return change, False  # one score per position, such as the logits of the start of a span
        if output.dim() == 2 and output.shape[0] == rows and output.shape[1] != rows:
            return change.amax(-1), True
    return None


def _largest(change: Tensor) -> float:
    """Return the largest finite element; 0 if there is none."""
    finite = change[change.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _rows(call: Call, base: _BaseForward) -> Optional[Event]:
    """Change row 0 of the batch, and return how much the outputs of row 0 and of the other rows change."""
    if any(isinstance(layer, BATCH_NORM) and layer.running_mean is None for layer in call.module.modules()):
        return None  # such a layer uses the statistics of the batch even in evaluation mode
    language = _language(call)
    recorded = base.recorded
    if len({axis for *_, axis in language}) > 1:
        return None  # ambiguous: the rows are windows of one text, shifted by one token each, so both axes fit
    if language:
        tokens, labels, _, head, axis = language[-1]
        if tokens.shape[1 - axis] < 3:
            return None
        replaced = _replace_tokens(tokens, _pad_of(tokens if axis else tokens.t()))
        if replaced is None:
            return None
        changed = tokens.clone()
        (changed if axis else changed.t())[0] = (replaced if axis else replaced.t())[0]
        before = _logits(base.outputs, recorded, tokens, labels, head)
        changed_forward = _Recorder()
        after = _logits(_forward_with(tokens, changed, call, changed_forward), changed_forward, tokens, labels, head)
        if before is None or after is None or before.shape != after.shape:
            return None
        change = _change_of(before, after).amax(-1)
        change = (change if axis else change.t()).amax(-1)
    else:
        axis = 1
        first = next(iter(_arguments(call)), None)
        if first is None or first.dim() not in (2, 3) or first.shape[0] < 3 or _is_graph(call, len(first)):
            return None
        tokens = first
        changed = tokens.clone()
        changed[0] = tokens[1].flip(0) if tokens.is_floating_point() else tokens[1]
        if bool((changed[0] == tokens[0]).all()):
            return None
        changed_forward = _Recorder()
        outputs = _forward_with(tokens, changed, call, changed_forward)
        rows = len(tokens)
        pairs = [
            (a, b) for a, b in zip(base.outputs, outputs) if a.dim() >= 2 and a.shape == b.shape and len(a) == rows
        ]
        if not pairs or rows in pairs[0][0].shape[1:]:  # ambiguous: another dimension of the output may be the rows
            return None
        change = _change_of(*pairs[0]).reshape(rows, -1).amax(-1)
    if changed_forward.states != recorded.states or not base.repeats:
        return NOT_REPEATABLE
    layer = _layer_over_rows(call, tokens)
    one_label_per_row = _has_one_label_per_row(call, tokens)
    if layer and not language and not one_label_per_row:
        return None  # the layout may be [time, rows]
    return {
        "language": bool(language),
        "rows": len(change),
        "same": _largest(change[:1]),
        "others": _largest(change[1:]),
        "changed_rows": int((change[1:] > VISIBLE_CHANGE).sum()),
        "routed": sorted(recorded.names & {"topk", "sort", "argsort", "argmax", "bincount", "one_hot"}),
        "in_sequence": 0 < recorded.sequences[len(change)] <= 2,
        "rows_as_time": layer if axis else None,
        "softmax_over_rows": one_label_per_row and recorded.has_softmax_over_rows(len(change)),
    }


def _has_one_label_per_row(call: Call, inputs: Tensor) -> bool:
    """Return whether every loss of a call has one label for every row of the inputs, [rows, width, ...]."""
    rows, width = inputs.shape[:2]
    return rows != width and width > 1 and {labels.numel() for labels, *_ in call.losses} == {rows}


def _arguments(call: Call) -> Iterator[Tensor]:
    """Yield the tensors in the arguments of a call, `input_ids` first."""
    from .observer import tensors_in

    yield from tensors_in((call.kwargs.get("input_ids"), call.args, call.kwargs))


def _is_graph(call: Call, rows: int) -> bool:
    """Return whether an argument may connect the rows: a matrix of all pairs, a sparse tensor, or a list of edges."""
    for tensor in _arguments(call):
        if tensor.layout != torch.strided or tensor.shape == (rows, rows):
            return True
        if tensor.dim() == 2 and tensor.dtype in INTEGERS and 2 in tensor.shape and len(tensor) != rows:
            if tensor.numel() and 0 <= int(tensor.min()) and int(tensor.max()) < rows:
                return True
    return False


def _layer_over_rows(call: Call, inputs: Tensor) -> Optional[str]:
    """Return the first layer that gets [rows, time, features] although it expects [time, rows, features]; else None.

    The result is wrong if the inputs are [time, rows, ...], so the caller must check by the labels that axis 0 is the
    rows: the labels are the next tokens along axis 1, or there is one label per row.

    Args:
        call: The call.
        inputs: The argument of the call, [rows, time, ...].
    """
    rows, width = inputs.shape[:2]
    if rows == width or width < 2:
        return None
    layers: list[str] = []

    def make_hook(name: str) -> Callable[[object, tuple[object, ...], dict[str, object]], None]:
        def hook(module: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            inputs = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)]
            if inputs and inputs[0].dim() == 3 and inputs[0].shape[:2] == (rows, width):
                layers.append(f"{name} ({type(module).__name__})")

        return hook

    has_hooks = False
    for name, module in call.module.named_modules():
        if isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and not module.batch_first:
            module.register_forward_pre_hook(make_hook(name), with_kwargs=True)
            has_hooks = True
    if has_hooks:
        _forward(call, _Recorder())
    return layers[0] if layers else None

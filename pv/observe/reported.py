"""Records the numbers that a script reports, and the numbers that a script reads from tensors in an evaluation.

A number is reported if the script prints it, logs it, or passes it to a library that stores metrics. Only libraries
that the script has imported are wrapped. Output streams keep their buffering, encoding and file descriptors: the
observer replaces only the method `write` of a stream.
"""

from __future__ import annotations

import itertools
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional

from torch import Tensor

from . import frames

if TYPE_CHECKING:
    from .observer import Observer

NUMBER = re.compile(r"(?<![\d.])-?\d+\.\d+(?:[eE][-+]?\d+)?(?!\.?\d)")
"""A number with decimals, such as 0.25 or 1.5e-3. A part of a version such as 2.1.0 does not match."""
ANY_NUMBER = re.compile(r"-?\d[\d.]*(?:[eE][-+]?\d+)?")
"""A number with or without decimals, such as the step in "step 12: loss 0.25"."""
MAX_LINE = 10_000
"""Largest number of characters of an incomplete line that are stored."""
MAX_NUMBERS, MAX_PARTS, MAX_NAME = 20, 100, 40
"""Limits: numbers in a report, visited elements of a list or a dictionary, and characters in the name of a number.

`MAX_NUMBERS` also limits the lines of one write to a stream.
"""
MAX_REPEATS = 3
"""Largest number of recorded reports of a line of code while neither a step ends nor a pass over a loader begins.

Reports whose first numbers have different names are counted separately.
"""
MAX_REPORTS, MAX_READS, MAX_SEARCHES = 5_000, 20_000, 50_000
"""Limits of a process: `report` events, `read` events, and reports whose line of code is searched on the stack."""

RECORDERS: dict[str, tuple[tuple[str, str], ...]] = {
    "torch.utils.tensorboard.writer": (("SummaryWriter", "add_scalar"), ("SummaryWriter", "add_scalars")),
    "tensorboardX.writer": (("SummaryWriter", "add_scalar"), ("SummaryWriter", "add_scalars")),
    "transformers.trainer": (("Trainer", "log"),),
    "accelerate.accelerator": (("Accelerator", "log"),),
    "wandb.sdk.wandb_run": (("Run", "log"),),
    "mlflow": (("", "log_metric"), ("", "log_metrics")),
    "json": (("", "dump"), ("", "dumps")),
    "csv": (("", "writer"),),
}
"""The functions that store numbers, by module: pairs of a class ("" for the module itself) and a function."""


class Reports:
    """Records the reports of one process.

    Args:
        observer: Returns the observer of this process.
    """

    def __init__(self, observer: Callable[[], Observer]) -> None:
        self._observer = observer
        self._is_reporting = False
        """Whether a function that reports is running. The output of this function is not a separate report."""
        self._wrapped: set[str] = set()
        """The modules of `RECORDERS` that are wrapped."""
        self._repeats: dict[tuple[object, ...], int] = {}
        """Number of reports by (key of the call, ended steps, begun passes over loaders, name of the first number)."""
        self._reports = self._reads = self._searches = 0
        """Counters with the limits `MAX_REPORTS`, `MAX_READS` and `MAX_SEARCHES`."""

    def is_active(self) -> bool:
        """Return whether a report is recorded: in the main thread, outside the observer and outside other reports."""
        is_main_thread = threading.current_thread() is threading.main_thread()
        return not self._is_reporting and is_main_thread and self._observer().is_active()

    def record(self, kind: str, numbers: Mapping[str, object]) -> None:
        """Record a report, unless a limit is reached.

        Args:
            kind: The function that reports, such as "print".
            numbers: The numbers by name or position: strings with the reported digits, or tensors.
        """
        observer = self._observer()
        self._searches += bool(numbers)
        if not numbers or self._searches > MAX_SEARCHES:
            return
        with observer.observing("report"):
            at, key = observer.sites.find()
            # A line that reports in every batch would fill the trace, so `MAX_REPEATS` limits its reports per step.
            place = (key, observer.ended_steps, observer.passes, next(iter(numbers)))
            self._repeats[place] = self._repeats.get(place, 0) + 1
            if len(self._repeats) > 1_000:
                self._repeats = {place: self._repeats[place]}
            if self._reports < MAX_REPORTS and self._repeats[place] <= MAX_REPEATS:
                self._reports += 1
                observer.add("report", by=kind, at=at, key=key, numbers=numbers)

    def record_line(self, kind: str, line: str) -> None:
        """Record the numbers in a line of text."""
        self.record(kind, _numbers_in(line))

    def watch_stream(self, stream: Any) -> None:
        """Record the numbers with decimals in the lines that are written to a stream.

        Text with a carriage return is ignored: it belongs to a progress bar, which shows values at arbitrary times.
        """
        original = stream.write
        incomplete_line = ""

        @frames.wraps(original)
        def write(text: object) -> object:
            nonlocal incomplete_line
            result = original(text)
            if not isinstance(text, str) or not self.is_active():
                return result
            if "\r" in text:  # a progress bar overwrites the incomplete line
                incomplete_line = ""
                return result
            *lines, incomplete_line = (incomplete_line + text).split("\n")
            incomplete_line = incomplete_line[-MAX_LINE:]
            with self._observer().observing("report"):
                for line in lines[:MAX_NUMBERS]:
                    if "." in line:
                        self.record_line("print", line)
            return result

        try:
            stream.write = write
        except (AttributeError, TypeError):  # the attributes of this stream cannot be replaced
            return

    def wrap_libraries(self) -> None:
        """Wrap the functions of `RECORDERS` whose modules were imported since the last call of `wrap_libraries`."""
        for name, functions in RECORDERS.items():
            module = sys.modules.get(name)
            if module is None or name in self._wrapped:
                continue
            self._wrapped.add(name)
            for owner_name, function in functions:
                owner = getattr(module, owner_name, None) if owner_name else module
                original = getattr(owner, function, None)
                if original is not None and function == "writer":
                    setattr(owner, function, self._wrap_writer(original))
                elif original is not None:
                    setattr(owner, function, self._wrap_recorder(function, original, bool(owner_name)))

    def _wrap_recorder(self, name: str, original: Callable[..., object], is_method: bool) -> Callable[..., object]:
        """Return a wrapper of a function that stores numbers; it records the numbers in the arguments."""

        @frames.wraps(original)
        def record(*args: object, **kwargs: object) -> object:
            if not self.is_active():
                return original(*args, **kwargs)
            with self._observer().observing("report"):
                self.record(name, _numbers_of([*(args[1:] if is_method else args), *kwargs.values()]))
            self._is_reporting = True
            try:
                return original(*args, **kwargs)
            finally:
                self._is_reporting = False

        return record

    def _wrap_writer(self, original: Callable[..., object]) -> Callable[..., object]:
        """Return a wrapper of `csv.writer`; it returns a writer that records the numbers in its rows."""

        @frames.wraps(original)
        def writer(*args: object, **kwargs: object) -> object:
            return _RecordingWriter(original(*args, **kwargs), self)

        return writer

    def watch_read(self, name: str) -> None:
        """Wrap a method of `Tensor`, such as `item`, to record the numbers that the script reads with this method."""
        original = getattr(Tensor, name)

        @frames.wraps(original)
        def read(tensor: Tensor) -> object:
            value = original(tensor)
            self.record_number(name, tensor, lambda: float(value))
            return value

        setattr(Tensor, name, read)

    def watch_format(self) -> None:
        """Wrap `Tensor.__format__` to record that the script formats a sum of losses that keeps their graphs.

        The wrapper of `item` cannot record this: `Tensor.__format__` calls `item` of a detached tensor without a graph.
        """
        formatted: Callable[..., object] = Tensor.__format__

        @frames.wraps(formatted)
        def format_tensor(tensor: Tensor, spec: str) -> object:
            if tensor.requires_grad and tensor.grad_fn is not None and self._observer().is_active():
                with self._observer().observing("term"):
                    self._observer().terms.record_history(self._observer(), tensor)
            return formatted(tensor, spec)

        setattr(Tensor, "__format__", format_tensor)  # noqa: B010 (mypy refuses an assignment to a method)

    def watch_conversion(self, name: str) -> None:
        """Wrap `Tensor.__float__` or `Tensor.__int__` to record the numbers that the script reads with this method."""
        setattr(Tensor, name, _Conversion(name, self))

    def record_number(self, name: str, tensor: Tensor, value: Callable[[], object]) -> None:
        """Record a number that the script reads from a tensor.

        If the tensor has a graph, the number may be a term of a later loss. If the tensor has no graph, it may be a
        detached loss. In an evaluation, the number becomes a `read` event, whether the tensor has a graph or not.

        Args:
            name: The method of `Tensor` that reads the number.
            tensor: The tensor.
            value: Returns the number, or a tensor with the number.
        """
        observer = self._observer()
        if tensor.requires_grad and tensor.grad_fn is not None and name != "__int__" and observer.is_active():
            with observer.observing("term"):
                observer.terms.add_number(observer, tensor, value())
        elif observer.terms.computed and type(tensor) is Tensor and observer.is_active():
            with observer.observing("term"):
                observer.terms.record_read(tensor)
        if observer.evaluated_rows and self._reads < MAX_READS and self.is_active():
            with observer.observing("read"):
                at, key = observer.sites.find()
                self._reads += 1
                rows = 0 if key in observer.read_by else observer.evaluated_rows
                observer.read_by.add(key)
                observer.add("read", at=at, key=key, value=value(), rows=rows)


class _Conversion:
    """A descriptor that replaces a method of `Tensor`, and records the number when the method is looked up.

    torch warns if a tensor that requires a gradient is converted. The warning names the line that calls the method, so
    it would name a line of the observer instead of the script if a wrapper called the method.
    """

    def __init__(self, name: str, reports: Reports) -> None:
        self._name, self._original, self._reports = name, getattr(Tensor, name), reports

    def __get__(self, tensor: Optional[Tensor], owner: object = None) -> object:
        if tensor is not None and tensor.numel() == 1:
            self._reports.record_number(self._name, tensor, lambda: tensor.detach().reshape(()).clone())
        return self._original.__get__(tensor, owner)


class _RecordingWriter:
    """A writer of `csv` that records the numbers in its rows. The strings in the first row name the columns."""

    def __init__(self, writer: Any, reports: Reports) -> None:
        self._writer, self._reports = writer, reports
        self._names: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._writer, name)

    def writerow(self, row: object) -> object:
        """Record the numbers in a row, and write the row."""
        row = list(row) if isinstance(row, Iterator) else row  # `csv.DictWriter` passes a generator
        if isinstance(row, (list, tuple)) and self._reports.is_active():
            with self._reports._observer().observing("report"):
                self._record_row(row)
        return self._writer.writerow(row)

    def writerows(self, rows: Iterable[object]) -> None:
        """Write all rows, and record the numbers in the first `MAX_REPEATS` rows."""
        remaining = iter(rows)
        for row in itertools.islice(remaining, MAX_REPEATS):
            self.writerow(row)
        self._writer.writerows(remaining)

    def _record_row(self, row: Sequence[object]) -> None:
        """Record the numbers in a row by the names of their columns; store the names if this is the first row."""
        if not self._names:
            self._names = [str(part) if isinstance(part, str) else "" for part in row]
        names = self._names + [""] * len(row)
        numbers: dict[str, object] = {}
        for position, part in enumerate(row[:MAX_PARTS]):
            numbers.update(_numbers(names[position] or f"column {position + 1}", part, 1))
        self._reports.record("csv", dict(itertools.islice(numbers.items(), MAX_NUMBERS)))


def _numbers(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, object]]:
    """Yield the names and values of the numbers in an argument.

    These are fractional floats, float tensors of one element, and formatted numbers with decimals in containers.

    A name consists of keys and positions, such as "train.loss". A value is a string with the digits, or a tensor.

    Args:
        name: The name of the value; "" if it has none.
        value: The argument, or an element of a container in the argument.
        depth: The number of containers around the value; at most three nested containers are visited.
    """
    if isinstance(value, Tensor):
        if value.numel() == 1 and value.is_floating_point():
            yield name, value.detach().reshape(())
    elif isinstance(value, float) or type(value).__name__ in ("float32", "float16"):
        if abs(value) < float("inf") and not float(value).is_integer():
            yield name, float.__repr__(float(value))
    elif isinstance(value, str):
        if depth and NUMBER.fullmatch(value):  # a formatted number in a container
            yield name, value
    elif isinstance(value, dict) and depth < 3:
        for key, part in list(value.items())[:MAX_PARTS]:
            yield from _numbers(f"{name}.{key}" if name else str(key), part, depth + 1)
    elif isinstance(value, (list, tuple)) and depth < 3:
        for position, part in enumerate(value[:MAX_PARTS]):
            yield from _numbers(f"{name}.{position}" if name else str(position), part, depth + 1)


def _numbers_of(arguments: list[object]) -> dict[str, object]:
    """Return the numbers in the arguments of a function of `RECORDERS`. A string as first argument is their name."""
    name = arguments[0] if arguments and isinstance(arguments[0], str) else ""
    values = (pair for value in arguments for pair in _numbers(name, value))
    return dict(itertools.islice(values, MAX_NUMBERS))


def _numbers_in(line: str) -> dict[str, str]:
    """Return the numbers with decimals in a line of text. The name of a number is the end of the text before it.

    If an earlier number has the same name, the count of earlier numbers is put in front of the name.
    In a name, "#" replaces every number, because the numbers may differ between reports of the same line of code.
    """
    numbers: dict[str, str] = {}
    for match in itertools.islice(NUMBER.finditer(line), MAX_NUMBERS):
        name = ANY_NUMBER.sub("#", line[: match.start()]).strip()[-MAX_NAME:]
        numbers[f"{len(numbers)} {name}" if name in numbers else name] = match.group()
    return numbers


def install(observer: Callable[[], Observer]) -> Reports:
    """Wrap the output streams and loggers of this process, and the methods of `Tensor` that return numbers.

    Args:
        observer: Returns the observer of this process.

    Returns:
        The reports. The caller must call `wrap_libraries` again when the script may have imported more modules.
    """
    reports = Reports(observer)
    # stdout and stderr may be the same object, or None in a program without a console.
    for stream in dict.fromkeys((sys.stdout, sys.stderr)):
        if stream is not None:
            reports.watch_stream(stream)
    reports.watch_read("item")
    reports.watch_format()
    for name in ("__float__", "__int__"):
        reports.watch_conversion(name)
    original = logging.Logger.callHandlers

    @frames.wraps(original)
    def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
        if not reports.is_active():
            return original(logger, record)
        with observer().observing("report"):
            reports.record_line("logging", record.getMessage())
        reports._is_reporting = True
        try:
            return original(logger, record)
        finally:
            reports._is_reporting = False

    setattr(logging.Logger, "callHandlers", call_handlers)  # noqa: B010 (mypy refuses an assignment to a method)
    return reports

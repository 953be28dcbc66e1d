"""Which numbers the observer records of what a script prints, logs, and writes."""

import csv
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("torch", reason="the observer needs torch")
import torch

from pv.observe.call_sites import CallSites
from pv.observe.reported import MAX_REPEATS, Reports
from pv.observe.terms import Terms


class Recorded:
    """An observer that only keeps the events that are added."""

    def __init__(self) -> None:
        self.sites, self.ended_steps, self.passes, self.evaluated_rows = CallSites(), 0, 0, 0
        self.read_by: set[int] = set()
        self.events: list[dict[str, Any]] = []
        self.terms = Terms()

    def is_active(self) -> bool:
        return True

    @contextmanager
    def observing(self, part: str) -> Iterator[None]:
        yield

    def add(self, kind: str, **fields: Any) -> None:
        self.events.append({"event": kind, **fields})

    @property
    def numbers(self) -> list[dict[str, Any]]:
        return [event["numbers"] for event in self.events]


@pytest.fixture
def observer() -> Recorded:
    return Recorded()


@pytest.fixture
def reports(observer: Recorded) -> Reports:
    return Reports(lambda: observer)


def test_printed_numbers_are_recorded_by_the_text_before_them(observer: Recorded, reports: Reports) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "ascii", line_buffering=True)
    reports.watch_stream(stream)
    print("epoch", 3, f"val loss {1.25:.4f}, 97.50%, rate {1e-5:.1e}", file=stream)
    print("version 2.1.0, 12 rows", file=stream)
    assert observer.numbers == [
        {"epoch # val loss": "1.2500", "epoch # val loss #,": "97.50", "epoch # val loss #, #%, rate": "1.0e-05"}
    ]
    assert (stream.encoding, stream.isatty(), stream.line_buffering) == ("ascii", False, True)
    assert stream.buffer.getvalue().endswith(b"12 rows\n")


def test_lines_of_a_progress_bar_are_not_reports(observer: Recorded, reports: Reports) -> None:
    stream = io.TextIOWrapper(io.BytesIO())
    reports.watch_stream(stream)
    stream.write("\r 50% loss 1.2345")
    stream.write("\r100% loss 1.3456")
    stream.write("\n")
    assert observer.events == []
    stream.write("\r 10% loss 1.4567")
    print("val", 2.5, file=stream)
    assert observer.numbers == [{"val": "2.5"}]


def test_a_line_that_reports_often_is_recorded_a_few_times_between_two_steps(
    observer: Recorded, reports: Reports
) -> None:
    stream = io.TextIOWrapper(io.BytesIO())
    reports.watch_stream(stream)
    for _ in range(2):
        for value in range(10):
            print(value / 4, file=stream)
        observer.ended_steps += 1
    assert len(observer.events) == 2 * MAX_REPEATS


def test_rows_of_a_table_are_recorded_by_the_names_of_its_first_row(observer: Recorded, reports: Reports) -> None:
    file = io.StringIO()
    writer: Any = reports._wrap_writer(csv.writer)(file)
    writer.writerow(name for name in ("epoch", "loss"))
    writer.writerows([[1, 0.5], [2, "0.2500"]])
    assert observer.numbers == [{"loss": "0.5"}, {"loss": "0.2500"}]
    assert file.getvalue() == "epoch,loss\r\n1,0.5\r\n2,0.2500\r\n"


def test_a_logger_is_recorded_with_its_tags_and_what_it_prints_is_not(observer: Recorded, reports: Reports) -> None:
    stream = io.TextIOWrapper(io.BytesIO())
    reports.watch_stream(stream)

    def log_metrics(metrics: dict[str, Any], step: int) -> None:
        print("logged 1.2345", file=stream)

    log = reports._wrap_recorder("log_metrics", log_metrics, False)
    log({"val": {"loss": torch.tensor(0.5), "rows": 30, "nan": float("nan")}}, 3)
    (numbers,) = observer.numbers
    assert {name: float(value) for name, value in numbers.items()} == {"val.loss": 0.5}


def test_reads_are_recorded_only_in_an_evaluation(
    observer: Recorded, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "item", torch.Tensor.item)  # restored after the test
    reports.watch_read("item")
    assert torch.tensor(2.5).item() == 2.5
    observer.evaluated_rows = 7
    assert torch.tensor(3).item() == 3
    for number in (4, 5):
        assert torch.tensor(number).item() == number
    assert [(event["value"], event["rows"]) for event in observer.events] == [(3.0, 7), (4.0, 7), (5.0, 0)]


def test_a_stream_that_takes_no_attributes_is_left_alone(reports: Reports) -> None:
    class Fixed:
        __slots__ = ()

        def write(self, text: str) -> int:
            return len(text)

    reports.watch_stream(Fixed())
    assert sys.stdout is not None

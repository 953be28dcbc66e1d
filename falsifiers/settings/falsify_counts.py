"""Attacks on the reading of numbers of steps: positive decimal integers, from every origin, one limit at a time.

The subject has `gather`, as `config.sources` does; where stated, it is the command line, `reference_trainer.cli`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, changes, place
from falsifiers.settings.attempts import assert_named, origins_of, refusal, started, toml_file
from falsifiers.settings.cases import NO_COUNTS, NO_COUNTS_IN_TOML, as_toml, variables
from reference_trainer.errors import SettingError


def falsify_invalid_counts_are_refused(subject: Any) -> None:
    """Refuse every N that is not a positive decimal integer, from each origin, and name the origin."""
    for text in NO_COUNTS:
        for variable in variables("smoke"):
            what = f"{variable}={text[:40]!r}"
            assert_named(refusal(what, subject.gather, {}, {variable: text}, None), variable)
    for text in [*NO_COUNTS, ""]:
        assert_named(refusal(f"--smoke {text[:40]!r}", subject.gather, {"smoke": text}, {}, None), "--smoke")
    for text in NO_COUNTS_IN_TOML:
        with toml_file(f"smoke = {text}") as path:
            message = refusal(f"smoke = {text[:40]} in a file", subject.gather, {}, {}, path)
            assert_named(message, "smoke", str(path))


DIGITS = "0123456789"
TEXTS = st.text(st.sampled_from("0015+-_ .eE٣５x\n\0²Ⅴ\u2028\udcff"), max_size=6) | st.sampled_from(NO_COUNTS)


@given(text=TEXTS | st.integers(0, 10**18).map(str) | st.integers(0, 20).map(lambda n: f"00{n}"))
def falsify_positive_decimal_integers_are_accepted(subject: Any, text: str) -> None:
    """At most 18 digits 0 to 9, not all 0, are accepted, with or without leading zeros; any other text is refused."""
    legal = 0 < len(text) <= 18 and all(sign in DIGITS for sign in text) and text.strip("0") != ""
    try:
        found = subject.gather({"smoke": text}, {}, None).smoke
    except SettingError as error:
        assert not legal, f"--smoke {text!r} is refused: {error}"
        return
    assert legal, f"--smoke {text!r} is accepted, as {found!r}"
    expected = sum(DIGITS.index(digit) * 10**k for k, digit in enumerate(reversed(text)))
    assert found == expected, f"--smoke {text!r} is read as {found}; expected {expected}"


def _attempts(where: Place) -> Iterator[tuple[str, str, list[str], dict[str, str]]]:
    """Yield origin, value, flags and variables of each wrong N; the file of the last origin is written."""
    for text in [text for text in NO_COUNTS if len(text) < 30]:
        yield "--smoke", text, ["--smoke", text], {}
        for variable in variables("smoke"):
            yield variable, text, [], {variable: text}
    file = where.tree / "settings.toml"
    for text in [text for text in NO_COUNTS_IN_TOML if len(text) < 30]:
        file.write_text(f"smoke = {text}\n", encoding="utf-8")
        yield str(file), text, ["--config", str(file)], {}


def falsify_command_line_refuses_invalid_counts(subject: Any) -> None:
    with place() as where:
        for origin, value, flags, environment in _attempts(where):
            before = where.listing()
            runs, ended = started(subject, where, *where.flags(), *flags, **environment)
            case = f"{origin} = {value!r}: exit code {ended.exit_code}, {ended.output!r}"
            assert ended.exit_code == 2 and not runs, f"{case}, {len(runs)} runs; expected exit code 2 and none"
            assert_named(ended.output, origin)
            assert not changes(before, where.listing()), f"{case}; it changed {changes(before, where.listing())}"


def falsify_two_limits_are_refused(subject: Any) -> None:
    for smoke, limit in itertools.product(origins_of("smoke"), origins_of("max_steps")):
        flags: dict[str, Any] = {}
        environment: dict[str, Any] = {}
        file: dict[str, Any] = {}
        for name, origin, value in (("smoke", smoke, 3), ("max_steps", limit, 41)):
            holder = {"flag": flags, "file": file}.get(origin, environment)
            holder[origin if holder is environment else name] = value if origin == "file" else str(value)
        with toml_file(as_toml(file)) as path:
            what = f"smoke from {smoke} with max_steps from {limit}"
            message = refusal(what, subject.gather, flags, environment, path)
            for origin, flag, key, value in (
                (smoke, "--smoke", "smoke", "3"),
                (limit, "--max-steps", "max_steps", "41"),
            ):
                names = {"flag": (flag,), "file": (key, str(path))}.get(origin, (origin,))
                assert_named(message, *names, value)

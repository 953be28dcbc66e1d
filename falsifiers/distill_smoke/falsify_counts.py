"""Attacks on the reading of numbers of steps: positive decimal integers, from every origin, one limit at a time.

The subject has `gather` and `SettingError`, as `config.sources` does; where stated, it is the command
line, `reference_trainer.cli`, whose run is replaced by one that records its settings.
"""

from __future__ import annotations

import itertools
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from falsifiers.distill_smoke.cases import Place, changes, invoked, place
from falsifiers.distill_smoke.settings_attempts import assert_said, noting, origins_of, refusal, shown, toml_file
from falsifiers.distill_smoke.settings_cases import COUNT, NO_COUNTS, NO_COUNTS_IN_TOML, as_toml, variables


def falsify_invalid_counts_are_refused(subject: Any) -> None:
    """Refuse every N that is not a positive decimal integer, from each origin, with origin, N and allowed values."""
    for text in NO_COUNTS:
        for variable in variables("smoke"):
            message = refusal(subject, f"{variable}={text!r}", subject.gather, {}, {variable: text}, None)
            assert_said(message, f" for {variable}: expected {COUNT}", shown(text))
    for text in [*NO_COUNTS, ""]:
        message = refusal(subject, f"--smoke {text!r}", subject.gather, {"smoke": text}, {}, None)
        assert_said(message, f"invalid value {repr(text)[:80]} for --smoke: expected {COUNT}")
    for text in NO_COUNTS_IN_TOML:
        with toml_file(f"smoke = {text}") as path:
            message = refusal(subject, f"smoke = {text}", subject.gather, {}, {}, path)
            assert_said(message, f" for 'smoke' in {path}: expected {COUNT}", shown(tomllib.loads(f"n = {text}")["n"]))


DIGITS = "0123456789"
TEXTS = st.text(st.sampled_from("0015+-_ .eE٣５x\n\0²Ⅴ\u2028\udcff"), max_size=6) | st.sampled_from(NO_COUNTS)


@given(text=TEXTS | st.integers(0, 10**18).map(str) | st.integers(0, 20).map(lambda n: f"00{n}"))
def falsify_positive_decimal_integers_are_accepted(subject: Any, text: str) -> None:
    """At most 18 digits 0 to 9, not all 0, are accepted, with or without leading zeros; any other text is refused."""
    legal = 0 < len(text) <= 18 and all(sign in DIGITS for sign in text) and text.strip("0") != ""
    try:
        found = subject.gather({"smoke": text}, {}, None).smoke
    except subject.SettingError as error:
        assert not legal, f"--smoke {text!r} is refused: {error}"
        return
    assert legal, f"--smoke {text!r} is accepted, as {found!r}"
    assert found == sum(DIGITS.index(digit) * 10**k for k, digit in enumerate(reversed(text))), f"{text!r} is {found}"


def falsify_command_line_refuses_invalid_counts(subject: Any) -> None:
    """Exit code 2, one line, no run, no file, from flag, variables and file. The subject is the command line."""
    with place() as where, noting() as noted:
        file = where.tree / "settings.toml"
        for text in [text for text in NO_COUNTS if len(text) < 30]:
            cases = [("--smoke", ["--smoke", text], {})]
            cases += [(variable, [], {variable: text}) for variable in variables("smoke")]
            for origin, flags, environment in cases:
                _assert_refused(subject, where, noted, origin, text, flags, environment)
        for text in [text for text in NO_COUNTS_IN_TOML if len(text) < 30]:
            file.write_text(f"smoke = {text}\n", encoding="utf-8")
            value = tomllib.loads(f"n = {text}")["n"]
            _assert_refused(subject, where, noted, f"'smoke' in {file}", value, ["--config", str(file)], {})


def _assert_refused(
    subject: Any, where: Place, noted: list[Any], origin: str, value: Any, flags: list[str], environment: dict[str, str]
) -> None:
    before = where.listing()
    ended = invoked(subject, where, *where.flags(), *flags, **environment)
    case = f"{origin} = {value!r}: exit {ended.exit_code}, {ended.output!r}"
    assert ended.exit_code == 2 and not noted, f"{case}, {len(noted)} runs; expected exit 2 and none"
    assert_said(ended.output, f"error: invalid value {value!r} for {origin}: expected {COUNT}")
    assert not changes(before, where.listing()), f"{case}; it changed {changes(before, where.listing())}"


def falsify_two_limits_are_refused(subject: Any) -> None:
    """Refuse smoke with max_steps from any two origins; the message names both with their values."""
    for smoke, limit in itertools.product(origins_of("smoke"), origins_of("max_steps")):
        flags, environment, file = {}, {}, {}
        for name, origin, value in (("smoke", smoke, 3), ("max_steps", limit, 41)):
            holder = {"flag": flags, "file": file}.get(origin, environment)
            holder[origin if holder is environment else name] = value if origin == "file" else str(value)
        with toml_file(as_toml(file)) as path:
            names = {"flag": "--{}", "file": f"'{{}}' in {path}"}
            what = f"smoke from {smoke} with max_steps from {limit}"
            message = refusal(subject, what, subject.gather, flags, environment, path)
            said = [names.get(smoke, smoke).format("smoke")]
            said.append(names.get(limit, limit).format("max-steps" if limit == "flag" else "max_steps"))
            assert_said(message, f"{said[0]} is 3", f"{said[1]} is 41")

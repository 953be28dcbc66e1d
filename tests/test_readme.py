"""The README says what is so: its transcript has the contract's numbers, its commands exist, its map is the tree."""

import re
from pathlib import Path

import pv
from pv.cli import main
from reference_trainer.cli import main as trainer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_transcript_has_the_contracts_numbers() -> None:
    contracts = pv.load([ROOT / "contracts"]).contracts
    for contract in contracts:
        falsifiers, mutants = len(contract.falsifiers), len(contract.mutants)
        cuda = sum("cuda" in falsifier.devices for falsifier in contract.falsifiers)
        not_measured = f"CUDA 0 of {cuda} (not measured on cuda), " if cuda else ""
        harnesses = len(contract.harnesses)
        proved = f"{harnesses} of {harnesses} proved, " if harnesses else ""
        line = (
            f"PASS       {contract.id} {contract.version}: {falsifiers} of {falsifiers} falsifiers survived, "
            f"{not_measured}{proved}{mutants} of {mutants} mutants killed"
        )
        assert re.search(f"^{re.escape(line)}(, .*)?$", README, re.MULTILINE), line
    assert f"0 fail, 0 undecided, {len(contracts)} pass; " in README
    (example,) = (contract for contract in contracts if contract.id == "kd-loss")
    assert f"1 of {len(example.falsifiers)} falsifiers selected\n" in README


def test_the_two_commands_are_there_to_be_run() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv ")]
    assert len(commands) == 2
    assert commands[0].endswith("/pv validate") and commands[1].endswith(" -m pytest -n auto --dist loadfile")


def test_every_command_and_option_is_real() -> None:
    commands = [*main.commands.values(), *trainer.commands.values()]
    options = {name for command in commands for p in command.params for name in p.opts}
    table = README[README.index("## Commands") : README.index("Everything the command line does")]
    named = set(re.findall(r"--[a-z][a-z-]*", table)) - {"--pv-mutant", "--pv-subject"}
    assert named <= options, named - options
    assert set(re.findall(r"`pv ([a-z]+)", table)) == set(main.commands)
    assert set(re.findall(r"`reference-trainer ([a-z]+)", table)) == set(trainer.commands)


def test_the_map_shows_what_is_there() -> None:
    table = README[README.index("## Map") :]
    for path in re.findall(r"`([a-z_]+/[a-z_]*)/?`", table):
        assert (ROOT / path).exists() or (ROOT / f"{path}.py").exists(), path

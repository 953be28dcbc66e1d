"""Commands besides a run: `recipes`, `schema`, `gradcheck`, `plot`, `evaluate`, `checkpoints` and `precompute`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from reference_trainer import interrupts
from reference_trainer.cli.distillation import SettingsCommand, gather_settings, setting_options
from reference_trainer.cli.group import FAILED, guarded, line_of, main, print_error
from reference_trainer.config.kinds import choices
from reference_trainer.config.settings import Settings
from reference_trainer.config.sources import recipes
from reference_trainer.errors import SettingError, TrainerError

SETTINGS = frozenset(
    "data out parts arguments teacher student teacher_steps teacher_layers teacher_width teacher_cache length device "
    "documents separator share_vocabulary batch_size temperature lr warmup seed rank_timeout dtype hang_after "
    "shard_teacher teacher_device_map data_share data_cache data_cache_gib threads "
    "turns chat_template template_options".split()
)
"""Settings of `precompute`: the data and the outputs of a teacher depend on them, or they control the processes."""


@main.command(cls=SettingsCommand)
@partial(setting_options, names=SETTINGS)
@click.option("--top-k", type=click.IntRange(min=1), metavar="K", help="Keep K tokens of each position [default: all].")
@click.option("--config", metavar="PATH", help="Read settings from this TOML or YAML file, or a recipe.")
def precompute(top_k: int | None, config: str | None, **flags: str | None) -> int:
    """Write the outputs of a teacher to a directory.

    The directory is --out; train on it with `distill --teacher-outputs`. Give the settings of that run: data, data
    share, length, documents, separator, tokenizer and shared vocabulary must be the same in both, and with --top-k also
    the temperature. The directory appears when it is complete. If the command is killed, run it again: it continues.
    """
    return guarded(lambda: _precompute(top_k, config, flags))


def _precompute(top_k: int | None, config: str | None, flags: dict[str, str | None]) -> int:
    settings = gather_settings(flags, config)
    from reference_trainer.pipeline.precompute import precompute as write  # imports torch, so check settings first

    interrupts.raise_once()
    try:
        write(settings, top_k=top_k)
    finally:
        interrupts.ignore()
    return 0


@main.command(name="recipes")
@click.argument("name", required=False)
def show_recipes(name: str | None) -> int:
    """List the packaged files of settings, or print one.

    `distill --config NAME` trains with such a file.
    """
    return guarded(lambda: _recipes(name))


def _recipes(name: str | None) -> int:
    packaged = recipes()
    if name is None:
        for recipe, path in packaged.items():
            click.echo(f"{recipe:12} {path.read_text().splitlines()[0].removeprefix('# ')}")
    elif name in packaged:
        click.echo(packaged[name].read_text(), nl=False)
    else:
        raise SettingError(f"unknown recipe {name!r} ({choices(packaged)})")
    return 0


@main.command()
@click.argument("name", type=click.Choice(["trace", "settings", "metrics"]), default="trace")
def schema(name: str) -> None:
    """Print the JSON Schema of a file format.

    The formats are the lines that --trace writes, a file of settings, and metrics.jsonl.
    """
    if name == "settings":
        from reference_trainer.config.settings import schema as json_schema
    elif name == "metrics":
        from reference_trainer.callbacks.metrics_file import schema as json_schema
    else:
        from reference_trainer.callbacks.trace import schema as json_schema

    click.echo(json_schema(), nl=False)


@main.command()
@click.option("--device", default="auto", show_default=True, help="Compute on auto, cpu, cuda or cuda:N.")
@click.option("--vocabulary", type=click.IntRange(2, 10**6), default=512, show_default=True, help="Number of tokens.")
@click.option("--positions", type=click.IntRange(1, 10**6), default=64, show_default=True, help="Sequence length.")
@click.option("--seed", type=click.IntRange(0, 10**18), default=0, show_default=True, help="Seed of the logits.")
def gradcheck(device: str, vocabulary: int, positions: int, seed: int) -> int:
    """Compare the closed-form gradient of the loss with autograd.

    Both are computed in float64. The exit code is 1 if they differ: do not trust runs on such a device.
    """
    return guarded(lambda: _gradcheck(device, vocabulary, positions, seed))


def _gradcheck(device: str, vocabulary: int, positions: int, seed: int) -> int:
    device = Settings(device=device).run.device  # refuses an invalid name before torch is imported
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.distillation.gradcheck import AGREE, differences
    from reference_trainer.models.placement import usable_device

    lines = Lines()
    agree = True
    torch_device = usable_device(device)
    for temperature, difference in differences(torch_device, (2, positions, vocabulary), seed):
        lines.write(f"temperature {temperature:5.2f}: relative difference {difference:.2e}")
        agree = agree and difference <= AGREE
    lines.write(f"{'agree' if agree else 'DIFFER'} on {torch_device}: differences up to {AGREE:.0e} are rounding")
    return 0 if agree else FAILED


@main.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--out", metavar="FILE", default="metrics.png", show_default=True, help="Write this .png or .svg file.")
@click.option("--metric", "metrics", metavar="NAME", multiple=True, help="Draw this metric only; repeatable.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def plot(runs: tuple[str, ...], out: str, metrics: tuple[str, ...], force: bool) -> int:
    """Draw loss, learning rate and other metrics of runs.

    A RUN is the output directory of a run, or its metrics.jsonl. Needs matplotlib (the extra `plot`).
    """
    return guarded(lambda: _plot([Path(run) for run in runs], Path(out), metrics, force))


def _plot(runs: list[Path], out: Path, metrics: tuple[str, ...], force: bool) -> int:
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.pipeline.plot import plot

    lines = Lines()
    for note in plot(runs, out, metrics=metrics, force=force):
        lines.write(note)
    lines.write(f"wrote {out}")
    return 0


@main.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--teacher", type=click.Path(path_type=Path), metavar="DIR", help="Measure against this model or checkpoint."
)
@click.option(
    "--teacher-outputs",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Measure against the outputs in this directory, which `precompute` has written; no teacher is run.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Evaluate on this text or file of chats [default: the packaged text; for other models, their run's].",
)
@click.option(
    "--student",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="The models are Hugging Face models; use the tokenizer of this one [default: of the first MODEL].",
)
@click.option(
    "--trust-remote-code", is_flag=True, default=None, help="Execute the Python code that Hugging Face models contain."
)
@click.option("--parts", metavar="MODULE:CLASS", help="Build the models with this class [default: as in their run].")
@click.option("--arguments", metavar="JSON", help="Arguments of the class that --parts names, as a JSON object.")
@click.option("--whole", is_flag=True, help="Evaluate on the whole text instead of the first 64 KiB of its last tenth.")
@click.option("--eval-rows", type=int, help="Evaluate on at most N conversations [default: as in the run, or 256].")
@click.option("--length", type=int, help="Tokens of a sequence [default: as in the run of the first MODEL].")
@click.option(
    "--accept-depth", type=int, help="With --teacher: tokens of a draft that it may accept [default: as in the run]."
)
@click.option(
    "--batch-size", type=int, default=Settings().data.batch_size, show_default=True, help="Sequences of a batch."
)
@click.option("--device", default="auto", show_default=True, help="Compute on auto, cpu, cuda or cuda:N.")
@click.option("--threads", type=int, help="Number of threads on the CPU [default: OMP_NUM_THREADS, or 1].")
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Take results of equal evaluations from this directory, and add new ones.",
)
@click.option("--json", "as_json", is_flag=True, help="Print sums, counts, digests and versions as JSON.")
def evaluate(models: tuple[Path, ...], whole: bool, cache: Path | None, as_json: bool, **options: object) -> int:
    """Evaluate saved models on a text.

    A MODEL is the output directory of a run, an exported model, a checkpoint such as OUT/checkpoints/student-latest, or
    a Hugging Face model. Losses are in nats per token (a byte of a text) at temperature 1. Length, documents,
    vocabulary, data type and custom parts are as in the run of the first MODEL that has recorded its settings. If
    custom parts have a method `evaluate`, it is used. --json prints the identity of the evaluation; compare only
    numbers with the same identity.

    The exit code is 1 if a MODEL cannot be evaluated; the other models are still evaluated.
    """
    return guarded(lambda: _evaluate(models, whole, cache, as_json, options))


def _evaluate(
    models: tuple[Path, ...], whole: bool, cache: Path | None, as_json: bool, options: dict[str, object]
) -> int:
    chosen = {name: value for name, value in options.items() if value is not None}
    Settings(**chosen)  # refuses invalid options before torch is imported
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.pipeline.saved_models import EvaluationResult, evaluate_saved, report, settings_of_run, table

    lines = Lines()
    failed = False

    def report_failure(error: TrainerError) -> None:
        nonlocal failed
        failed = True
        print_error(line_of(error))

    def write_row(evaluation: EvaluationResult) -> None:
        if as_json:
            return
        rows = table(evaluation)
        is_first = len(evaluation.models) == 1
        for line in rows if is_first else rows[-1:]:  # the header once, before the row of the first model
            lines.write(line)

    evaluation = evaluate_saved(
        models, settings_of_run(models, chosen), whole=whole, cache=cache, on_result=write_row, on_error=report_failure
    )
    if as_json:
        lines.write(json.dumps(report(evaluation), indent=2))
    return FAILED if failed else 0


class CheckpointStep(click.ParamType[int | Literal["latest", "best"]]):
    """The number of a step, "latest" or "best"."""

    name = "checkpoint"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | Literal["latest", "best"]:
        return value if value in ("latest", "best") else click.IntRange(0, 10**18).convert(value, param, ctx)


@main.command()
@click.argument("directory", metavar="DIR")
@click.option(
    "--export",
    type=(CheckpointStep(), click.Path(path_type=Path)),
    metavar="STEP|latest|best OUT",
    default=None,
    help="Write the student of this checkpoint as a model directory.",
)
def checkpoints(directory: str, export: tuple[int | Literal["latest", "best"], Path] | None) -> int:
    """List the checkpoints of a run and verify every file.

    DIR is the output directory of a run, or the directory of its checkpoints. With --export, write one checkpoint as a
    model directory instead; --teacher accepts this directory.

    The exit code is 1 if a checkpoint is damaged, or if there is none.
    """
    return guarded(lambda: _checkpoints(Path(directory), export))


def _checkpoints(directory: Path, export: tuple[int | Literal["latest", "best"], Path] | None) -> int:
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.pipeline.checkpoint_list import export_checkpoint, list_checkpoints, table

    lines = Lines()
    if export is not None:
        step, out = export
        export_checkpoint(directory, step, out)
        lines.write(f"wrote {out}")
        return 0
    checkpoints = list_checkpoints(directory)
    for line in table(checkpoints):
        lines.write(line)
    return FAILED if any(checkpoint.fault is not None for checkpoint in checkpoints) else 0

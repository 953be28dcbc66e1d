"""The command `precompute`: outputs of a teacher for many runs."""

from __future__ import annotations

from functools import partial

import click

from reference_trainer import interrupts
from reference_trainer.cli.distillation import gathered, setting_options
from reference_trainer.cli.group import main
from reference_trainer.cli.reporting import guarded

__all__ = ["SETTINGS", "precompute"]

SETTINGS = frozenset(
    "data out parts arguments teacher student teacher_steps teacher_layers teacher_width teacher_cache length device "
    "documents separator share_vocabulary batch_size temperature lr warmup seed rank_timeout dtype hang_after "
    "shard_teacher teacher_device_map data_share data_cache data_cache_gib threads "
    "turns chat_template template_options".split()
)
"""Settings that data and outputs of a teacher depend on."""


@main.command()
@partial(setting_options, names=SETTINGS)
@click.option("--top-k", type=click.IntRange(min=1), metavar="K", help="Keep K tokens of each position [default: all].")
@click.option("--config", metavar="PATH", help="Read settings from this TOML file.")
def precompute(top_k: int | None, config: str | None, **flags: str | None) -> int:
    """Write the outputs of a teacher to --out, for `distill --teacher-outputs`.

    Give the settings of the run: data, length, documents and tokenizer must be the same there, and the temperature with
    --top-k. The directory appears once it is whole; the same command goes on after a kill.
    """
    return guarded(lambda: _precompute(top_k, config, flags))


def _precompute(top_k: int | None, config: str | None, flags: dict[str, str | None]) -> int:
    settings = gathered(flags, config)
    from reference_trainer.pipeline.precompute import precompute as write  # imports torch, so after all checks

    interrupts.raise_once()
    try:
        write(settings, top_k=top_k)
    finally:
        interrupts.ignore()
    return 0

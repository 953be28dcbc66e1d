"""What a run that resumes must have in common with the saved one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from reference_trainer.config.settings import Settings
from reference_trainer.models.placement import device_name
from reference_trainer.plan.schedule import Schedule
from reference_trainer.storage.files import path_in_json

__all__ = ["conditions", "fixed_settings"]

FREE = frozenset(
    "data out force trace callbacks teacher teacher_outputs teacher_device_map shard_teacher student teacher_cache "
    "data_cache data_cache_gib eval_data eval_rows max_steps smoke log_every device project_to_steps save_every keep "
    "resume init_from rank_timeout hang_after eval_every rewind threads chat_template".split()
)
"""Settings that a run may change when it resumes. Data, template, teacher and device are compared by what they are."""


def fixed_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that a run may not change when it resumes."""
    return {name: value for name, value in settings if name not in FREE}


def conditions(
    settings: Settings,
    device: torch.device,
    schedule: Schedule,
    digests: Mapping[str, str],
    world_size: int,
    strategy: str,
) -> dict[str, Any]:
    """Return what a resumed run must have in common with the saved one, to end with the same bits."""
    began = {} if settings.init_from is None else {"init_from": path_in_json(settings.init_from.resolve())}
    return {
        **fixed_settings(settings),
        **began,
        **digests,
        "steps_per_epoch": schedule.steps_per_epoch,
        "planned_steps": schedule.planned_steps,
        "world_size": world_size,
        "strategy": strategy,
        "device": device_name(device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }

"""What is asked of a supervised run, and everything that keeps it from being supervised. Without torch."""

from __future__ import annotations

from dataclasses import dataclass

from reference_trainer.config.settings import Settings

__all__ = ["Limits", "problems"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """step: what is to be reached, None for the planned end. silent_s: age of the heartbeat of a rank to be killed."""

    step: int | None
    max_retries: int
    max_idle: int
    silent_s: float


def problems(settings: Settings | None, step: int | None) -> list[str]:
    """Return everything that keeps a run with `settings` from being supervised up to `step`, or to its planned end."""
    if settings is None:
        return ["missing the run after --, such as `-- distill --save-every 100`"]
    messages = list[str]()
    for name, hint in (("smoke", "saves nothing"), ("max_steps", "is --step here"), ("resume", "is chosen here")):
        if getattr(settings, name) is not None:
            messages.append(f"--{name.replace('_', '-')} {hint}; leave it out")
    if not settings.save_every:
        messages.append("--save-every is 0; expected a number of steps")
    elif step is not None and settings.save_every > step:
        messages.append(
            f"--save-every is {settings.save_every}, so no step before {step} is saved; expected at most {step}"
        )
    return messages

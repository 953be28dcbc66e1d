"""Wrong versions of public functions of the trainer, for mutants."""

from dataclasses import replace
from typing import Any

from falsifiers.support.run_lines import SMOKE_PROJECTION, SMOKE_SUMMARY, matcher


def environment_unread(original: Any, flags: Any, environment: Any, config: Any) -> Any:
    return original(flags, {}, config)


def limit_by_default(original: Any, *origins: Any) -> Any:
    settings = original(*origins)
    limited = settings.run.smoke is not None or settings.schedule.max_steps is not None
    return settings if limited else settings.replace(max_steps=5)


def one_step_too_many(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    longer = schedule if schedule.limit is None else replace(schedule, limit=schedule.limit + 1)
    return original(longer, position, action)


def projection_lost(original: Any, *arguments: Any) -> Any:
    return original(*arguments)[:1]


def summary_of_every_run(original: Any, settings: Any, *, lines: Any = None, **rest: Any) -> Any:
    from reference_trainer.callbacks.progress import Lines
    from reference_trainer.pipeline.smoke import summary

    lines = lines or Lines()
    result = original(settings, lines=lines, **rest)
    for line in summary(result.train, settings.run.project_to_steps, 1) if settings.run.smoke is None else ():
        lines.write(line)
    return result


def lines_only_when_cut_off(original: Any, settings: Any, *, lines: Any = None, **rest: Any) -> Any:
    from reference_trainer.callbacks.progress import Lines

    lines = lines or Lines()
    write, steps = lines.write, list[str]()

    def write_if_cut_off(line: str) -> None:
        summary, projection = (matcher(form).fullmatch(line) for form in (SMOKE_SUMMARY, SMOKE_PROJECTION))
        steps.extend([summary["steps"]] if summary else [])
        if not (summary or projection) or steps[0] == str(settings.run.smoke):
            write(line)

    lines.write = write_if_cut_off
    return original(settings, lines=lines, **rest)


def exported_before_it_is_skipped(original: Any, settings: Any, **rest: Any) -> Any:
    from reference_trainer.storage.export import save_decoder

    result = original(settings, **rest)
    if settings.run.smoke is not None:
        settings.run.out.mkdir(parents=True, exist_ok=True)
        save_decoder(result.student, settings.run.out, {})
    return result


def exported_like_any_run(original: Any, settings: Any, **rest: Any) -> Any:
    if settings.run.smoke is not None:
        settings = settings.replace(smoke=None, max_steps=settings.run.smoke)
    return original(settings, **rest)


def output_unchecked(original: Any, path: Any, **rest: Any) -> None:
    """Accept every output."""


def output_refused(original: Any, files: Any, *arguments: Any) -> None:
    from reference_trainer.storage.files import refuse_existing

    refuse_existing(files.settings.run.out, force=False)
    original(files, *arguments)


def one_step_too_few(original: Any, schedule: Any) -> Any:
    return original(schedule) - (schedule.limit is not None)


def limit_compared_with_the_epoch(original: Any, schedule: Any, position: Any, action: Any) -> Any:
    after = original(schedule, replace(position, step=position.epoch_step), action)
    return after and replace(after, step=after.step + position.step - position.epoch_step)


def zero_is_a_count(original: Any, schedule: Any) -> None:
    if 0 not in (schedule.epochs, schedule.steps_per_epoch, schedule.limit):
        original(schedule)

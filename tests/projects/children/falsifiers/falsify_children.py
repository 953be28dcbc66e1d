"""Runs the package in child processes of every kind; the worker itself calls none of it."""

import multiprocessing
import subprocess
import sys


def _said(*arguments, **options):
    ended = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=100, **options)
    return {"said": ended.stdout.strip() or ended.stderr[-2000:]}


def module(subject, *, device, directory, trace, leave):
    return _said("-m", "pkg", *leave)


def console(subject, *, device, directory, trace):
    return _said("-c", "from pkg.cli import main; main()")


def cleaned(subject, *, device, directory, trace):
    """A child that nothing of the worker's environment reaches."""
    return _said("-m", "pkg", env={})


def cleaned_beside_the_subject(subject, **given):
    subject.unused(1)
    return cleaned(subject, **given)


def killed_beside_the_subject(subject, **given):
    subject.unused(1)
    return module(subject, **given, leave=["kill"])


def spawn(subject, *, device, directory, trace):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_answer, args=(queue,))
    child.start()
    said = queue.get(timeout=100)
    child.join()
    return {"said": str(said)}


def _answer(queue):
    from pkg.core import answer

    queue.put(answer())


def falsify_seven(run):
    assert run.result["said"] == "7", run.result["said"]

"""Runs of commands in a process of their own."""

import os
import subprocess
import sys


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `pv`."""
    return _module("pv", *arguments, **environment)


def run_pytest(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return _module("pytest", "-p", "no:cacheprovider", "-rs", *arguments, COLUMNS="200")


def _module(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    given = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, env=given, timeout=600)

"""Needs what nobody has."""

from no_such_library import mean  # noqa: F401

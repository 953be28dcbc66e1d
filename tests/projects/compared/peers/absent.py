"""Needs what nobody has."""

from no_such_library import mean as mean

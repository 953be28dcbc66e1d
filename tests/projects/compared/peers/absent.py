"""Imports a package that does not exist."""

from no_such_library import mean as mean

"""The small project to mutate, for the tests of `pv mutate`."""

from tests.mutation.shop import shop

__all__ = ["shop"]

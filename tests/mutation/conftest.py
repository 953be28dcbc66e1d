"""The small project to mutate, for every test of this folder."""

from tests.mutation.shop import shop

__all__ = ["shop"]

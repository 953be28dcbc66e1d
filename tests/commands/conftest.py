"""The small project to mutate, and workers that validations share."""

from tests.mutation.shop import shop
from tests.support.workers import shared_workers

__all__ = ["shared_workers", "shop"]

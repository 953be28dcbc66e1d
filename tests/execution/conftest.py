"""Fixtures: the small project to mutate, and workers that validations share."""

from tests.mutation.shop import shop as shop
from tests.support.workers import shared_workers as shared_workers

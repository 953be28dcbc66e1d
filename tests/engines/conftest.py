"""Workers that validations share."""

from tests.support.workers import shared_workers as shared_workers

"""The copy that tests import."""

PRICES = [1, 2]

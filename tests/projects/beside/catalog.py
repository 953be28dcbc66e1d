"""Another copy, which no test imports."""

PRICES = []

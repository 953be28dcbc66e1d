"""Prices."""
from shop.tax import tax
RATE = 2
UNUSED = 5

def price(cents, pieces=1):
    """Return the price."""
    if cents < 0:
        raise ValueError("negative")
    total = cents * pieces * RATE
    return total + tax()

def half(number):
    return number // 2  # rounded

def ratio(part, whole):
    values = [part / whole for _ in range(2)]
    best = max(values)
    return best if part >= 0 and whole != 0 else -best

def unused(number):
    while number > 9:
        number -= 3
    return not number

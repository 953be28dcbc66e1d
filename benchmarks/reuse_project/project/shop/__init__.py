"""A shop."""
from shop.price import price
from shop.state import counter

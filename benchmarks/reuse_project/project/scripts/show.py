import sys
sys.path.insert(0, '.')
from shop.price import half
print(half(8))

import sys
sys.path.insert(0, '.')
import shop.help
print(shop.help.bare.__doc__)

from shop.shapes import *

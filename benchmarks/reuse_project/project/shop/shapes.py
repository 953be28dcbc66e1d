__all__ = ['area', 'side']
side = 2

def area(number):
    return number * number

import shop.tax
counter = {"calls": 0}
calls = 0

def work():
    found = []
    for step in (1, 2, 3):
        counter["calls"] += step
        found.append(counter["calls"])
    return found

def replacement():
    return 7

class Box:
    value = 1

Box.value = replacement

def patched():
    return Box.value()

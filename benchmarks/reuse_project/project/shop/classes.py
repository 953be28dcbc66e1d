import dataclasses

SEEN = []
class Meta(type):
    def __new__(meta, name, bases, space):
        space["tag"] = name.lower()
        return super().__new__(meta, name, bases, space)

class Base:
    factor = 3
    def __init_subclass__(cls):
        SEEN.append(cls.__name__)
    def area(self):
        return self.side * self.factor

class Square(Base):
    side = 2
    @property
    def double(self):
        return 2 * self.area()
    @staticmethod
    def one():
        return 1
    @classmethod
    def name(cls):
        return cls.__name__

class Tagged(metaclass=Meta):
    def __eq__(self, other):
        return True
    __hash__ = None

@dataclasses.dataclass(order=True)
class Point:
    x: int = 1
    y: int = dataclasses.field(default_factory=lambda: 2)
    def __post_init__(self):
        self.total = self.x + self.y

def summary():
    square = Square()
    return [square.area(), square.double, square.one(), square.name(), SEEN, Tagged.tag, Tagged() == 1, Point().total,
            Point() < Point(2)]

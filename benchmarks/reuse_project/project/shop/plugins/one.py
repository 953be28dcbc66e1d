NAME = "one"

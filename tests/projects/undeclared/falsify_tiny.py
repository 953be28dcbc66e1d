def falsify_double(subject):
    wanted = 6
    assert subject.double(3) == wanted

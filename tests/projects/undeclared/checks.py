def check_double(subject):
    assert subject.double(2) == 4

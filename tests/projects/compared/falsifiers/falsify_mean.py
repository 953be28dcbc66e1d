def falsify_pair(subject):
    seen = subject.mean([1.0, 2.0])
    assert seen == 1.5, f"the mean of 1 and 2 is {seen}; expected 1.5"


def falsify_nothing(subject):
    seen = subject.mean([])
    assert seen == 0.0, f"the mean of nothing is {seen}; expected 0"

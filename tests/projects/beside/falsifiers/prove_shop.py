def prove_double(subject, n):
    assert subject.double(n) == n + n

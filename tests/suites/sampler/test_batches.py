from pv.suites.sampler.batches import Batches


def test_every_rank_has_equally_many_batches() -> None:
    parts = [list(Batches(10, 2, world_size=3, rank=rank)) for rank in range(3)]
    assert [[len(batch) for batch in part] for part in parts] == [[2, 2]] * 3
    assert {index for part in parts for batch in part for index in batch} == {*range(10)}


def test_a_restored_one_goes_on() -> None:
    whole, restored = Batches(10, 3), Batches(10, 3)
    epoch = iter(whole)
    next(epoch)
    restored.load_state_dict(whole.state_dict())
    assert list(restored) == list(epoch)

"""The epoch that runs is known to what runs in it, and to nothing beside it."""

import threading

import anabranch as ab
from anabranch.operators.epoch_context import EpochContext, count_anomaly, current, epoch_time, running, take_anomalies
from anabranch.testing import run_parallel


def test_contexts_nest_and_end_also_when_something_fails():
    with running(EpochContext(time_ms=1)) as outer:
        try:
            with running(EpochContext(time_ms=2)):
                count_anomaly("inner", "late")
                assert epoch_time() == 2
                raise KeyError
        except KeyError:
            pass
        assert epoch_time() == 1 and current() is outer and outer.anomalies == {}


def test_threads_do_not_share_an_epoch():
    seen = []
    with running(EpochContext(time_ms=7)):
        thread = threading.Thread(target=lambda: (count_anomaly("other", "late"), seen.append(epoch_time())))
        thread.start()
        thread.join()
        assert seen == [0] and take_anomalies() == {}


def test_two_programs_in_turn_count_and_tell_the_time_each_for_itself():
    late = ab.from_rows([(5, 1), (4, 2), (1, 3), (0, 4)], "at long, x long").sort("at", ab.count(1))
    with running(EpochContext(time_ms=5)) as mine:
        found = [late.run_sequential(), run_parallel(late, channels=2), late.run_sequential()]
        assert found[0] == found[1] == found[2]
        assert epoch_time() == 5
        twice = dict(mine.anomalies)
    with running(EpochContext()) as once:
        late.run_sequential()
    assert once.anomalies and twice == {what: 2 * number for what, number in once.anomalies.items()}

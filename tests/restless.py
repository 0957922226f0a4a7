"""A run that is cut off and rescaled at random, for property tests: its output must be that of one thread."""

from hypothesis import strategies as st

from anabranch import faults
from anabranch.testing import ParallelRun

POINTS = ["epoch begun", "segment written", "job done", "sink written", "commit checked", "manifest written"]


class Crash(BaseException):
    """The end of a driver."""


def restless_output(data, stream, checkpoint, seed=0, clocks_ms=(), ends=False, last=3):
    """What comes out of a run whose drivers die, and whose regions get other numbers of channels between epochs.

    `last` is the last epoch in which a driver may die.
    """
    left = data.draw(st.lists(st.tuples(st.sampled_from(POINTS), st.integers(0, last)), max_size=4))
    written = {}

    def die(point, facts):
        if (point, facts.get("epoch")) in left:
            left.remove((point, facts.get("epoch")))
            raise Crash

    faults.install(die)
    try:
        while True:
            channels = data.draw(st.integers(1, 8))
            try:
                run = ParallelRun(
                    stream, checkpoint, channels=channels, seed=seed, written=written, clocks_ms=clocks_ms
                )
                for epoch in range(run.epochs):
                    run.run_epochs(epoch, epoch)
                    if data.draw(st.booleans()):
                        for region in run.runner.status():
                            run.runner.rescale(region.name, data.draw(st.integers(1, 8)))
                if ends:
                    run.end()
                return run.output
            except Crash:
                continue
    finally:
        faults.install(None)

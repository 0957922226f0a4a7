"""What a worker does not look through after every task."""

import gc
import itertools
import weakref

import pytest

from anabranch.spark import worker_garbage


@pytest.fixture
def worker(monkeypatch):
    """As if this were a worker that has run no task yet."""
    monkeypatch.setattr(worker_garbage, "_begun", itertools.count(1))
    assert gc.get_freeze_count() == 0
    yield
    gc.unfreeze()


def frozen_in(tasks):
    """How many objects are frozen after each of so many tasks, collected as Spark does it."""
    found = []
    for _ in range(tasks):
        worker_garbage.task_begins()
        found.append(gc.get_freeze_count())
        gc.collect()
    return found


def test_what_the_first_task_imported_is_not_visited_again(worker):
    first, second, third = frozen_in(3)
    assert first == 0
    assert second > 10_000  # modules
    assert len(gc.get_objects()) < second / 2  # what a collection visits
    assert third == pytest.approx(second, rel=0.01)


def test_it_is_done_a_few_times_only(worker, monkeypatch):
    done = []
    begun = []
    monkeypatch.setattr(gc, "freeze", lambda: done.append(len(begun)))
    for task in range(1, 201):
        begun.append(task)
        worker_garbage.task_begins()
    assert done == sorted(worker_garbage._FROZEN_AT)


def test_garbage_of_later_tasks_is_collected(worker):
    class Node:
        pass

    frozen_in(3)
    left = Node()
    left.itself = left
    gone = weakref.ref(left)
    del left
    gc.collect()
    assert gone() is None


def test_what_is_frozen_is_freed_when_nothing_refers_to_it(worker):
    class Node:
        pass

    held = Node()
    gone = weakref.ref(held)
    frozen_in(2)
    del held
    assert gone() is None

"""Packets between the tasks of a machine: each receiver gets all that is for it, in order, of one attempt only."""

import errno
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engine.worker.packet_files import lists_in, received, send

rows = st.lists(st.tuples(st.integers(0, 4), st.binary(min_size=1, max_size=3), st.binary(max_size=40)), max_size=20)


@given(sent=st.lists(rows, min_size=1, max_size=4))
def test_each_receiver_gets_its_rows_in_their_order(tmp_path_factory, sent):
    place = tmp_path_factory.mktemp("packets")
    paths = [str(place / str(number)) for number in range(len(sent))]
    for path, mine in zip(paths, sent, strict=True):
        send(iter(mine), path)
    assert sorted(os.listdir(place)) == sorted(map(os.path.basename, paths))
    found = [lists_in(path) for path in paths]
    for receiver in range(5):
        lists = [each[receiver] for each in found if receiver in each]
        got = [(order, payload.as_py()) for order, payload in received(lists)]
        assert [order for order, _ in got] == sorted(order for order, _ in got)
        assert sorted(got) == sorted((order, data) for mine in sent for to, order, data in mine if to == receiver)


def test_rows_of_equal_order_come_sender_by_sender_as_they_were_sent(tmp_path):
    for number in range(3):
        send(iter([(0, b"same", bytes([number, at])) for at in range(50)]), str(tmp_path / str(number)))
    lists = [lists_in(str(tmp_path / str(number)))[0] for number in range(3)]
    expected = [bytes([number, at]) for number in range(3) for at in range(50)]
    assert [payload.as_py() for _, payload in received(lists)] == expected


def test_of_two_attempts_of_a_task_the_first_that_ends_is_the_one(tmp_path):
    path = str(tmp_path / "packets")
    send(iter([(0, b"a", b"first"), (1, b"a", b"first")]), path)
    known = lists_in(path)
    send(iter([(0, b"a", b"another, and longer"), (1, b"a", b"another")]), path)
    assert os.listdir(tmp_path) == ["packets"]
    for lists in (known, lists_in(path)):
        assert [payload.as_py() for receiver in (0, 1) for _, payload in received([lists[receiver]])] == [b"first"] * 2


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_where_files_have_one_name_only_they_appear_whole_and_stay_all_the_same(tmp_path, monkeypatch, number):
    def none(*names):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", none)
    path = str(tmp_path / "packets")
    send(iter([(0, b"a", b"first")]), path)
    send(iter([(0, b"a", b"another")]), path)
    assert os.listdir(tmp_path) == ["packets"]
    assert [payload.as_py() for _, payload in received([lists_in(path)[0]])] == [b"first"]


def test_a_disk_that_is_full_is_no_disk_without_links(tmp_path, monkeypatch):
    def full(*names):
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="no space left"):
        send(iter([(0, b"a", b"first")]), str(tmp_path / "packets"))
    assert os.listdir(tmp_path) == []


def test_payloads_are_there_when_the_file_is_gone_and_share_its_memory(tmp_path):
    data = random.Random(3).randbytes(1 << 21)
    path = str(tmp_path / "packets")
    send(iter([(7, b"b", data), (7, b"a", b"")]), path)
    arrived = list(received([lists_in(path)[7]]))
    os.unlink(path)
    assert [order for order, _ in arrived] == [b"a", b"b"]
    buffers = [payload.as_buffer() for _, payload in arrived]
    assert buffers[0].size == 0 and buffers[1].to_pybytes() == data
    assert buffers[1].address == arrived[1][1].as_buffer().address, "the payload was copied"


def test_a_task_that_fails_leaves_no_packets(tmp_path):
    def failing():
        yield 0, b"a", b"data"
        raise ValueError("halfway")

    with pytest.raises(ValueError, match="halfway"):
        send(failing(), str(tmp_path / "packets"))
    assert os.listdir(tmp_path) == []

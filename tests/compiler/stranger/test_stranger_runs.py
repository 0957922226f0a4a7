"""Every program runs on one thread and gives something; nothing else is asked here."""

import pytest

from anabranch.testing import run_sequential
from tests.compiler.stranger.stranger_collection import ALL
from tests.compiler.stranger.stranger_entry import Entry


@pytest.mark.parametrize("entry", ALL, ids=lambda entry: entry.name)
def test_the_program_runs_and_gives_output(entry: Entry) -> None:
    assert len(entry.data.rows()) >= 60
    (output,) = run_sequential([entry.build()])
    assert output
    assert run_sequential([entry.build(rows_per_epoch=50)]) == [output]


def test_names_are_unique_and_the_collection_is_whole() -> None:
    names = [entry.name for entry in ALL]
    assert len(set(names)) == len(names)
    kinds = [entry.kind for entry in ALL]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"stateless": 60, "keyed": 90, "mixed": 10}


def test_the_keys_of_a_first_operator_are_columns_with_several_values() -> None:
    for entry in ALL:
        first = entry.expected[0]
        if first.kind == "keyed":
            source = [column.split()[0] for column in entry.data.schema.split(", ")]
            places = [source.index(column) for column in first.key]
            assert len({tuple(row[at] for at in places) for row in entry.data.rows()}) >= 6, entry.name

"""Options: each has one row, durations are read in one way, and slips of the pen are found."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.api.session import from_epochs
from anabranch.api.writer import DataStreamWriter
from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.levels import LEVEL_FUNCTIONS
from anabranch.engine.query_options import QueryOptions
from anabranch.errors import ProgramError
from anabranch.partitioning.placing.construct import Construction
from anabranch.program.model import OutputOrder
from anabranch.program.option_names import check_names
from anabranch.program.options import OPTIONS, Interval, is_ours, read_options, seconds_of

OURS = [option.name for option in OPTIONS]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 2),
        ("1.5 seconds", 1.5),
        ("20 ms", 0.02),
        ("1 minute", 60),
        ("1 hour", 3600),
        ("2 days", 172_800),
        ("1 hour 30 minutes", 5400),
        ("interval 5 seconds", 5),
        ("0", None),
        ("0 seconds", None),
        ("-1 second", None),
        ("soon", None),
        ("5 epochs", None),
        ("", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_times_as_people_write_them(text, seconds):
    assert seconds_of(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"snapshotInterval": "often"}, "snapshotInterval='often': expected for example '20 epochs'"),
        ({"versionsKept": "1"}, "versionsKept='1': expected a whole number, 2 or more"),
        ({"mergers": "-1"}, "mergers='-1': expected auto, or a whole number from 0 to 4096"),
        ({"order": "some"}, "order='some': expected one of total, key, none"),
        ({"splithotkeys": "yes"}, "splitHotKeys='yes': expected one of auto, on, off"),
        ({"allowStateLoss": "maybe"}, "allowStateLoss='maybe': expected true or false"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_was_expected(given, expected):
    with pytest.raises(ProgramError) as error:
        QueryOptions.parse(given)
    assert expected in str(error.value)


def test_options_are_read_whatever_the_case_and_those_of_formats_are_passed_over():
    said = read_options({"MAXCHANNELS": "8", "snapshotinterval": "1 hour", "header": "true", "compression": "zstd"})
    assert said == {"maxChannels": 8, "snapshotInterval": Interval(seconds=3600)}


@given(name=st.sampled_from(OURS), data=st.data())
def test_a_letter_too_few_too_many_or_another_is_found_and_the_name_suggested(name, data):
    at = data.draw(st.integers(0, len(name) - 1))
    letter = data.draw(st.sampled_from("aeiksx"))
    before, after = name[:at], name[at + 1 :]
    slip = data.draw(st.sampled_from([before + after, before + letter + name[at:], before + letter + after]))
    if is_ours(slip) or len(name) < 6:  # "path" with another letter may be anything
        return
    with pytest.raises(ProgramError, match=r"unknown option .* did you mean"):
        check_names([slip])


@pytest.mark.parametrize(
    "name",
    [
        "header",
        "sep",
        "quote",
        "compression",
        "maxRecordsPerFile",
        "mergeSchema",
        "numRows",
        "truncate",
        "timestampFormat",
        "parquet.bloom.filter.enabled#k",
        "orc.bloom.filter.columns",
        "my.own.format.setting",
    ],
)
def test_options_of_formats_pass(name):
    check_names([name])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ordering", "order"),
        ("checkpoint", "checkpointLocation"),
        ("snapshots", "snapshotInterval"),
        ("hotKeys", "splitHotKeys"),
        ("balance", "balancing"),
        ("idleTimeout", "executorIdleTimeout"),
        ("tolerance", "imbalanceTolerance"),
        ("max_channels", "maxChannels"),
        ("stateLoss", "allowStateLoss"),
        ("watching", "watch"),
        ("period", "adaptationPeriod"),
        ("targetEpoch", "epochTarget"),
    ],
)
def test_what_people_call_an_option_is_refused_with_its_name(name, meant):
    with pytest.raises(ProgramError, match=f"unknown option {name!r}: did you mean {meant!r}"):
        check_names([name])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"verifyAction": "report"}, "verifyAction has no effect without verify"),
        ({"imbalanceTolerance": "1.5", "balancing": "off"}, "imbalanceTolerance has no effect with balancing='off'"),
        ({"partitioning": "scan", "balancing": "off"}, "partitioning has no effect with balancing='off'"),
        ({"levels": "single"}, "levels has no effect without policy='paper'"),
        ({"minExecutors": "2"}, "minExecutors has no effect without maxExecutors"),
    ],
)
def test_what_would_have_no_effect_is_refused(given, why):
    with pytest.raises(ProgramError, match=why):
        QueryOptions.parse(given)


@pytest.mark.parametrize("form", ["noop", "console", "memory"])
def test_mergers_where_nothing_is_written_as_files_are_refused(form):
    node = from_epochs([[]], "k string")._node
    with pytest.raises(ProgramError, match="mergers has no effect"):
        DataStreamWriter(None, node).format(form).option("mergers", 2).queryName("q").start("out")


@pytest.mark.parametrize("name", [name for name in OURS if name not in ("order", "path", "latestBy", "changeColumn")])
def test_an_output_beside_another_has_no_options_of_the_query(name):
    node = from_epochs([[]], "k string")._node
    second = DataStreamWriter(None, node).option(name, "whatever it is")
    with pytest.raises(ProgramError, match=rf"also\(…\): option {name} is the query's"):
        DataStreamWriter(None, node).also(second).start("out")


def test_a_query_with_a_slip_of_the_pen_is_not_started():
    node = from_epochs([[]], "k string")._node
    second = DataStreamWriter(None, node).option("ordre", "none")
    for writer in (DataStreamWriter(None, node).option("maxChanels", 4), DataStreamWriter(None, node).also(second)):
        with pytest.raises(ProgramError, match=r"unknown option '(maxChanels|ordre)': did you mean"):
            writer.start("out")


def test_no_two_options_are_so_close_that_one_would_be_taken_for_the_other():
    assert len({name.lower() for name in OURS}) == len(OURS)
    for one, other in itertools.permutations(OURS, 2):
        check_names([one, other])


def test_what_can_be_chosen_is_what_there_is():
    expected = {option.name: option.kind.expected for option in OPTIONS}
    assert expected["partitioning"] == f"one of {', '.join(each.value for each in Construction)}"
    assert expected["order"] == f"one of {', '.join(each.value for each in OutputOrder)}"
    assert set(expected["levels"].removeprefix("one of ").split(", ")) == set(LEVEL_FUNCTIONS)


def test_nothing_said_is_what_the_defaults_say():
    assert QueryOptions.parse({}) == QueryOptions() and ElasticOptions.parse({}) == ElasticOptions()

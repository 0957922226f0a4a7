"""What tasks report comes to the driver as it was, and only what is meant to be shown is shown."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.engine.driver.epoch_progress import TaskProgress
from anabranch.engine.reports import (
    Anomaly,
    ChannelReport,
    MergerReport,
    RoutedKeys,
    SplitReport,
    WrittenFile,
    from_bytes,
    to_bytes,
)
from anabranch.partitioning.counting.key_costs import KeyTimesReport
from anabranch.partitioning.counting.tally import TallyReport
from anabranch.state.records import SegmentRecord

seconds = st.floats(0, 1e9)
counts = st.integers(0, 2**40)
names = st.text(max_size=5)
anomalies = st.lists(st.builds(Anomaly, names, names, counts), max_size=3).map(tuple)
column = st.binary(max_size=9)
tallies = st.builds(TallyReport, counts, counts, column, column, column)
times = st.builds(KeyTimesReport, counts, seconds, column, column, column, column, counts, seconds)
keys = st.lists(st.builds(RoutedKeys, counts, tallies), max_size=3).map(tuple)
files = st.lists(st.builds(WrittenFile, counts, counts, counts, names, counts), max_size=2).map(tuple)


def records(inner):
    return st.builds(
        SegmentRecord,
        name=names,
        operator=names,
        channel=counts,
        generation=counts,
        route=st.lists(names, max_size=2).map(tuple),
        first=counts,
        last=counts,
        rows=counts,
        bytes=counts,
        checksum=counts,
        transient=st.booleans(),
        made=st.none() | counts,
        parts=inner,
        adopted=st.lists(names, max_size=2).map(tuple),
        data=st.none() | st.binary(max_size=9),
    )


reports = st.one_of(
    st.builds(
        SplitReport,
        seconds,
        seconds,
        counts,
        st.dictionaries(names, counts, max_size=3),
        st.none() | seconds,
        st.dictionaries(names, counts, max_size=3),
        st.dictionaries(names, seconds, max_size=3),
        files,
        keys,
        anomalies,
    ),
    st.builds(
        ChannelReport,
        stage=counts,
        name=names,
        depth=counts,
        channel=counts,
        began_s=seconds,
        seconds=seconds,
        rows_in=counts,
        segments=st.lists(records(st.lists(records(st.just(())), max_size=2).map(tuple)), max_size=2).map(tuple),
        damaged=st.lists(names, max_size=2).map(tuple),
        measured=st.none() | times,
        operators=st.dictionaries(names, counts, max_size=3),
        files=files,
        keys=keys,
        anomalies=anomalies,
    ),
    st.builds(MergerReport, counts, seconds, files),
)


@given(report=reports)
def test_a_report_arrives_as_it_was_sent(report):
    assert from_bytes(to_bytes(report)) == report


@given(report=reports)
def test_of_a_report_the_same_is_shown_whatever_the_task_told_the_driver_beside_it(report):
    shown = vars(TaskProgress.of(report))
    assert shown["rows_in"] == report.rows_in and shown["seconds"] == report.seconds
    assert not shown.keys() & {"segments", "damaged", "measured", "keys", "anomalies", "file"}

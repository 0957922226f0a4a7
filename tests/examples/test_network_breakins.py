"""The network monitoring kernel of *Elastic*."""

from pathlib import Path

import pytest

import anabranch as ab
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.safe_plan import Joint, Routing
from anabranch.papers.safe_regions import Rules
from examples.network_breakins import LINES, generate, program
from tests.examples.checks import CHANNELS, assert_parallel_is_sequential, built, exact, on_spark, paper_plan

ROWS = generate(4000, seed=6)
REAL = Path(__file__).parents[2].parent / "shared" / "data" / "OpenSSH_2k.log"


def expected(rows, within=60, after=600):
    """For each login the failures of its host before it, looked through from the end for five that are close."""
    days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    failures, found = {}, []
    for line in (row["line"] for row in rows["lines"]):
        if " sshd[" not in line:
            continue
        month, day, clock = line.split()[:3]
        hours, minutes, seconds = map(int, clock.split(":"))
        at = (sum(days[: months.index(month)]) + int(day) - 1) * 86400 + hours * 3600 + minutes * 60 + seconds
        _, _, message = line.partition("]: ")
        words = message.removesuffix("]").split()
        if "Failed password" in message:
            times = int(words[2]) if message.startswith("message repeated") else 1
            failures.setdefault(words[-4], []).extend([at] * times)
        elif message.startswith("Accepted "):
            before = failures.get(words[-4], [])
            for last in range(len(before) - 1, 3, -1):
                if before[last] - before[last - 4] <= within:
                    if at - before[last] <= after:
                        found.append((at, words[-4], words[3], 5, before[last - 4], before[last]))
                    break
    return found


def real_rows():
    if not REAL.exists():
        pytest.skip(f"no real log beside the repository: {REAL.name}")
    return {"lines": [{"line": line} for line in REAL.read_text().splitlines()]}


def with_breakins(rows, every=90):
    """The papers' data was "modified with several fake breakins": somebody who failed gets in, at the same time."""
    lines = []
    for number, row in enumerate(rows["lines"]):
        lines.append(row)
        if "Failed password for" in row["line"] and "repeated" not in row["line"] and number % every < 6:
            lines.append({"line": row["line"].replace("Failed", "Accepted").replace("for invalid user ", "for ")})
    return {"lines": lines}


def test_logins_after_many_failures_of_the_same_host_are_breakins():
    found = built(program, LINES, ROWS).run_sequential()
    assert 10 < len(found) < sum("Accepted" in row["line"] for row in ROWS["lines"]) / 2
    assert [tuple(row) for row in found] == expected(ROWS)


@pytest.mark.parametrize("channels", CHANNELS)
def test_parallel_is_sequential(channels):
    assert_parallel_is_sequential(built(program, LINES, ROWS, epochs=4), channels)


def test_nobody_broke_in_to_the_real_server():
    rows = real_rows()
    assert built(program, LINES, rows).run_sequential() == [] == expected(rows)


def test_every_failure_of_the_real_log_is_seen():
    rows = real_rows()
    stream = built(program, LINES, rows)
    parsed = next(each for each in _upstream(stream) if each.name == "parse_failures")
    found = ab.Stream(None, parsed, set()).run_sequential()
    plain = sum(" Failed password for" in row["line"] for row in rows["lines"])
    repeated = [row["line"].split() for row in rows["lines"] if "message repeated" in row["line"]]
    assert len(found) == plain + sum(int(words[7]) - 1 for words in repeated) > 500


def _upstream(stream):
    from anabranch.program.graph import upstream

    return upstream(stream._node)


@pytest.mark.parametrize("channels", CHANNELS)
def test_fake_breakins_among_the_real_lines_are_found_at_any_number_of_channels(channels):
    rows = with_breakins(real_rows())
    stream = built(program, LINES, rows, epochs=3)
    assert len(expected(rows)) > 5
    assert [tuple(row) for row in stream.run_sequential()] == expected(rows)
    assert_parallel_is_sequential(stream, channels)


def test_the_regions_are_those_of_the_paper():
    """*Elastic*: "There are four parallel regions, one of which is stateful." They are ParseLines, ParseFailures, the
    path of the logins, and what counts failures by host; DupSplit and NoShuffle "cannot be parallelized".

    NoShuffle stands where the paper's compiler could not shuffle: behind a region that makes many tuples of one. Ours
    merges and splits there by itself. The last filter, which was in the condition of the paper's join, is one more
    region."""
    plan = paper_plan(built(program, LINES, ROWS))
    lines, failures, logins, attacks, breakins = plan.regions
    assert lines.operators == ("parse_lines",)
    assert failures.operators == ("ways_0", "parse_failures")
    assert logins.operators == ("ways_1", "parse_logins")
    assert attacks.operators == ("attacks", "many") and attacks.key == ("host",)
    assert breakins.operators == ("breakins",)
    assert [region.stateless for region in plan.regions] == [True, True, True, False, True]
    assert [region.ordering for region in plan.regions] == [
        Strategy.STRICT,
        Strategy.RELAXED,
        Strategy.STRICT,
        Strategy.STRICT,
        Strategy.STRICT,
    ]
    assert attacks.routing is Routing.HASH
    assert (failures.last, attacks.first) == (Joint.MERGE, Joint.SPLIT) and "prolific" in attacks.reason
    assert plan.operator("ways").region is None and "ways" in plan.operator("ways").blocked
    assert plan.operator("suspects").region is None and "2 inputs" in plan.operator("suspects").blocked


def test_with_an_index_of_emissions_the_plan_of_the_paper_shuffles_failures_to_their_hosts():
    plan = paper_plan(built(program, LINES, ROWS), Rules(emission_index=True))
    assert (plan.region_of("parse_failures").last, plan.region_of("attacks").first) == (Joint.SHUFFLE, Joint.SHUFFLE)


@pytest.mark.spark
def test_on_spark(spark):
    stream = built(program, LINES, generate(2500, seed=5), epochs=2, session=ab.session(spark))
    found = stream.run_sequential()
    assert found and exact(on_spark(stream)) == exact(found)

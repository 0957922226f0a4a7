"""What users say about elasticity is understood, or refused with what was expected."""

import pytest

from anabranch.control.elastic_options import ElasticOptions
from anabranch.errors import ProgramError


def test_nothing_said_is_automatic_up_to_as_many_channels_as_tasks_run_at_once():
    options = ElasticOptions.parse({})
    assert options.beginning(slots=6, known=None) == 6
    assert (options.bounds(6).channels_min, options.bounds(6).channels_max) == (1, 6)


def test_a_pinned_number_is_the_number_whatever_the_checkpoint_says():
    assert ElasticOptions.parse({"channels": "3"}).beginning(slots=8, known=5) == 3


def test_a_restart_goes_on_with_what_the_checkpoint_says_within_the_bounds():
    assert ElasticOptions.parse({}).beginning(slots=2, known=5) == 5
    assert ElasticOptions.parse({"maxchannels": "4"}).beginning(slots=2, known=5) == 4
    assert ElasticOptions.parse({"minchannels": "4"}).beginning(slots=2, known=3) == 4
    assert ElasticOptions.parse({"initialchannels": "1"}).beginning(slots=2, known=3) == 3
    assert ElasticOptions.parse({"initialchannels": "1"}).beginning(slots=2, known=None) == 1


def test_executors_are_left_alone_unless_the_user_says_how_many_there_may_be():
    assert ElasticOptions.parse({}).executor_bounds is None
    bounds = ElasticOptions.parse({"maxexecutors": "8"}).executor_bounds
    assert (bounds.executors_min, bounds.executors_max, bounds.patience_s) == (1, 8, 60)
    given = {"maxexecutors": "8", "minexecutors": "2", "executoridletimeout": "5 seconds"}
    bounds = ElasticOptions.parse(given).executor_bounds
    assert (bounds.executors_min, bounds.executors_max, bounds.patience_s) == (2, 8, 5)


def test_periods_are_times_or_epochs():
    assert ElasticOptions.parse({"adaptationperiod": "8 epochs"}).period_epochs == 8
    assert ElasticOptions.parse({"adaptationperiod": "500 ms"}).period_s == 0.5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"channels": "0"}, "channels='0': expected a whole number from 1 to 4096"),
        ({"maxchannels": "many"}, "maxChannels='many': expected a whole number"),
        ({"minchannels": "5", "maxchannels": "3"}, "minChannels=5 is more than maxChannels=3"),
        ({"channels": "5", "maxchannels": "9"}, "channels=5 pins"),
        ({"initialchannels": "5", "maxchannels": "3"}, "initialChannels=5 is not between"),
        ({"policy": "best"}, "expected one of default, paper"),
        ({"policy": "paper", "levels": "many"}, "levels='many': expected one of paper, doubling, single"),
        ({"policy": "paper", "changesensitivity": "2"}, "changeSensitivity='2': expected a number from 0 to 1"),
        ({"levels": "doubling"}, "levels has no effect without policy='paper'"),
        ({"epochtarget": "-1"}, "epochTarget='-1': expected a time"),
        ({"adaptationperiod": "0 epochs"}, "adaptationPeriod='0 epochs'"),
        ({"congestionthreshold": "1"}, "congestionThreshold='1': expected a number"),
        ({"maxexecutors": "0"}, "maxExecutors='0': expected a whole number"),
        ({"minexecutors": "2"}, "minExecutors has no effect without maxExecutors"),
        ({"minexecutors": "3", "maxexecutors": "2"}, "minExecutors=3 is more than maxExecutors=2"),
        ({"maxexecutors": "3", "executoridletimeout": "never"}, "executorIdleTimeout='never': expected a time"),
    ],
)
def test_a_wrong_option_is_refused_with_what_was_expected(options, expected):
    with pytest.raises(ProgramError) as error:
        ElasticOptions.parse(options)
    assert expected in str(error.value)

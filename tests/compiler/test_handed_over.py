"""One function of an operator leaves an object, another changes it: refused where it outlives the call, else equal."""

import os

import pytest

from tests.compiler.fuzzing.handed_over import PAIRS, programs
from tests.compiler.product_path import compare

ROUNDS = int(os.environ.get("ANABRANCH_HANDED_OVER", "1"))
REASONS = ("outlives the call", "which is not kept for its key", "held outside of its state")
MADE = [each for seed in range(ROUNDS) for each in programs(seed)]


@pytest.mark.parametrize("pair", PAIRS)
def test_what_outlives_a_call_is_handed_on_to_nobody_who_changes_it(pair):
    for program in MADE:
        if program.title.startswith(f"{pair}, "):
            compared = compare(program.streams(), ways=((1, 1), (3, 2)))
            told = f"{program.title}\n{program.text}\n{compared.difference}"
            if program.is_fresh:
                assert compared.verdict in ("equal", "refused"), told
            elif not compared.sequential.error or compared.verdict != "equal":
                assert compared.verdict in ("refused", "stopped"), told
                assert any(each in told for each in REASONS), told

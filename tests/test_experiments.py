"""The experiments have one interface, verdicts follow from numbers, and the committed report is what its data say."""

import json
import re
from pathlib import Path

import pytest

from experiments import report
from experiments.__main__ import EVERYTHING, FIGURES, ON_SPARK, main, names
from experiments.reproduction import Reproduction
from experiments.statements import (
    UNEXPLAINED,
    Verdict,
    at_least,
    at_most,
    between,
    close,
    compares,
    holds,
    judged,
    near,
    overall,
    similar,
    surpasses,
)

DOCS = Path(__file__).resolve().parents[1] / "docs"
WANTED = {
    "safe": ["figure_07", "figure_09", "figure_10", "figure_11", "figure_13", "table_01"],
    "elastic": [f"figure_{n:02d}" for n in range(5, 20)],
    "partitioning": [f"figure_{n:02d}" for n in range(3, 15)],
    "operators": [f"figure_{n:02d}" for n in range(4, 8)],
    "resources": [f"figure_{n:02d}" for n in range(5, 10)],
}
MEASURED = {
    "safe": ["table_02", "figure_13"],
    "elastic": [*(f"figure_{n:02d}" for n in range(5, 17)), "figure_19"],
    "resources": ["figure_05", "figure_06"],
}
CHEAP = ("safe_table_01", "partitioning_figure_11", "partitioning_figure_14")


@pytest.fixture(scope="module")
def committed() -> dict:
    return json.loads((DOCS / "reproduction.json").read_text())


def test_every_figure_and_table_of_the_papers_has_an_experiment() -> None:
    assert set(FIGURES) == {f"{paper}_{figure}" for paper, figures in WANTED.items() for figure in figures}
    assert set(ON_SPARK) == {f"{paper}_{figure}_spark" for paper, figures in MEASURED.items() for figure in figures}


@pytest.mark.parametrize("name", names())
def test_an_experiment_is_a_documented_function_of_quick(name: str) -> None:
    assert EVERYTHING[name].__doc__.startswith(f"{report.label_of(name)}:")
    assert list(EVERYTHING[name].__annotations__) == ["quick", "return"]


@pytest.mark.parametrize("name", CHEAP)
def test_a_quick_run_gives_statements_with_verdicts(name: str) -> None:
    result = FIGURES[name](True)
    assert isinstance(result, Reproduction)
    assert result.statements
    assert result.tables
    assert result.verdict is overall(result.statements)


def test_the_command_writes_the_picture_the_data_and_the_document(tmp_path: Path) -> None:
    assert main(["partitioning_figure_11", "--quick", "--output", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "reproduction.json").read_text())
    assert [entry["name"] for entry in data["entries"]] == ["partitioning_figure_11"]
    assert (tmp_path / "reproduction.md").read_text() == report.render(data)
    assert (tmp_path / data["entries"][0]["picture"]).read_text().startswith("<?xml")


def test_an_unknown_experiment_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["partitioning_figure_99", "--output", str(tmp_path)]) == 2
    assert "partitioning_figure_03" in capsys.readouterr().err


# ---- verdicts ----


def test_a_single_run_is_met_within_half_of_the_effect_and_bettered_only_on_the_good_side() -> None:
    assert near("", 1.2, 1.15).verdict is Verdict.MEETS
    assert near("", 1.2, 1.05).verdict is Verdict.DIFFERS
    assert near("", 1.2, 1.35, better="higher").verdict is Verdict.BETTER
    assert near("", 1.2, 1.35, better="lower").verdict is Verdict.DIFFERS
    assert near("", 1.2, 1.0, better="lower").verdict is Verdict.BETTER


def test_bounds_and_sentences_are_met_or_not() -> None:
    assert at_most("", 1, 1.0).verdict is Verdict.MEETS
    assert at_most("", 1, 1.1).verdict is Verdict.DIFFERS
    assert at_least("", 1, 0.9).verdict is Verdict.DIFFERS
    assert holds("", False, "").verdict is Verdict.DIFFERS
    assert surpasses("", True, "", paper="").verdict is Verdict.BETTER
    assert surpasses("", False, "", paper="").verdict is Verdict.DIFFERS


def test_what_is_not_a_number_meets_nothing() -> None:
    assert near("", 10, float("nan"), better="higher").verdict is Verdict.DIFFERS
    assert at_most("", 1, float("nan")).verdict is Verdict.DIFFERS


def test_a_reason_is_shown_only_for_a_difference() -> None:
    assert at_most("", 1, 2, because="of this").reason == "of this"
    assert at_most("", 1, 2).reason == UNEXPLAINED
    assert at_most("", 1, 1, because="of this").reason == ""


def test_one_difference_makes_the_figure_differ() -> None:
    meets, better, differs = holds("", True, ""), surpasses("", True, "", paper=""), holds("", False, "")
    assert overall([meets, better, differs]) is Verdict.DIFFERS
    assert overall([meets, better]) is Verdict.BETTER
    assert overall([meets]) is Verdict.MEETS
    with pytest.raises(ValueError, match="without statements"):
        overall([])


# ---- the committed report ----


def test_the_report_has_every_experiment_from_a_full_run(committed: dict) -> None:
    assert [entry["name"] for entry in committed["entries"] if entry["mode"] != "full"] == []
    found = {entry["name"] for entry in committed["entries"]}
    assert set(FIGURES) <= found <= set(names())  # those on Spark are measured apart, one by one
    assert committed["figures"] >= 25


def test_the_document_is_made_of_the_data(committed: dict) -> None:
    assert (DOCS / "reproduction.md").read_text() == report.render(committed)
    assert committed == report.collected(committed["entries"])


def test_the_data_are_the_numbers_behind_the_verdicts_and_no_more(committed: dict) -> None:
    text = (DOCS / "reproduction.json").read_text()
    assert text == report.to_json(committed)
    assert len(text.splitlines()) < 20 * committed["figures"]


def test_verdicts_of_the_report_follow_from_its_statements(committed: dict) -> None:
    for entry in committed["entries"]:
        verdicts = {statement["verdict"] for statement in entry["statements"]}
        expected = next((v for v in ("differs", "better") if v in verdicts), "meets")
        assert entry["verdict"] == expected, entry["name"]


def test_verdicts_of_the_report_are_judged_again_from_its_numbers(committed: dict) -> None:
    judged_again = 0
    for entry in committed["entries"]:
        for statement in entry["statements"]:
            assert judged(statement["rule"]).value == statement["verdict"], (entry["name"], statement)
            judged_again += 1
    assert judged_again > 200


def test_every_entry_says_with_which_commit_it_was_measured_and_when(committed: dict) -> None:
    assert [entry["name"] for entry in committed["entries"] if not (entry["commit"] and entry["at"])] == []


def test_no_tolerance_is_the_same_for_all(committed: dict) -> None:
    """Not from a number somebody chose, but from seeds, from rounding and from the effect."""
    within = [
        statement["rule"]["within"]
        for entry in committed["entries"]
        for statement in entry["statements"]
        if statement["rule"]["kind"] == "near"
    ]
    assert len(within) > 20 and max(within.count(each) for each in within) <= len(within) / 4


def test_statements_of_ours_are_counted_apart(committed: dict) -> None:
    rows = [statement for entry in committed["entries"] for statement in entry["statements"]]
    assert committed["statements"] + committed["statements_of_ours"] == len(rows)
    for statement in rows:
        if re.search(r"\(ours|; ours\)", statement["text"]):
            assert statement["ours"], statement["text"]
    document = (DOCS / "reproduction.md").read_text()
    assert document.count("| we say of ours |") == sum(
        any(statement["ours"] for statement in entry["statements"]) for entry in committed["entries"]
    )


def test_a_tolerance_follows_from_the_spread_over_seeds() -> None:
    assert close("", 1.2, [1.1, 1.2, 1.3, 1.2, 1.2]).verdict is Verdict.MEETS
    assert close("", 1.2, [1.4, 1.5, 1.6, 1.5, 1.5]).verdict is Verdict.DIFFERS
    assert close("", 1.2, [1.3] * 5).verdict is Verdict.DIFFERS
    assert close("", 1.2, [1.24] * 5).verdict is Verdict.MEETS  # the paper's 1.2 may be 1.25, rounded


def test_a_number_is_taken_to_be_rounded_as_it_is_printed() -> None:
    assert close("", 2500, [2549.0] * 5).verdict is Verdict.MEETS
    assert close("", 2500, [2551.0] * 5).verdict is Verdict.DIFFERS
    assert close("", 93, [93.6] * 5).verdict is Verdict.DIFFERS
    assert close("", 50, [54.0] * 5).verdict is Verdict.MEETS
    assert close("", 1.35, [1.356] * 5).verdict is Verdict.DIFFERS


def test_seeds_that_differ_much_do_not_make_no_effect_the_papers() -> None:
    wide = [0.5, 1.0, 2.5, 0.8, 2.2]
    assert close("", 2.0, wide).verdict is Verdict.MEETS
    assert close("", 2.0, wide, neutral=1.0).verdict is Verdict.DIFFERS


def test_what_is_alike_is_so_within_a_quarter_and_a_range_has_rounded_ends() -> None:
    assert similar("", 1.25).verdict is similar("", 0.8).verdict is Verdict.MEETS
    assert similar("", 1.26).verdict is similar("", 0.79).verdict is Verdict.DIFFERS
    assert between("", 11.4, 21.1, [21.14]).verdict is Verdict.MEETS
    assert between("", 11.4, 21.1, [21.16]).verdict is Verdict.DIFFERS


def test_comparisons_are_all_to_be_true() -> None:
    assert compares("", [(1, "<", 2), (2, "≤", 2)], "").verdict is Verdict.MEETS
    assert compares("", [(1, "<", 2), (2, ">", 2)], "").verdict is Verdict.DIFFERS
    assert not compares("", [(1, "<", 2)], "").ours and surpasses("", True, "", paper="").ours


def test_every_difference_has_a_reason_or_says_that_none_was_found(committed: dict) -> None:
    for entry in committed["entries"]:
        for statement in entry["statements"]:
            assert bool(statement["reason"]) == (statement["verdict"] == "differs"), statement


def test_pictures_are_there_and_small(committed: dict) -> None:
    for entry in committed["entries"]:
        if entry["picture"]:
            assert (DOCS / entry["picture"]).stat().st_size < 150_000, entry["name"]

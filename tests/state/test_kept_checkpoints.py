"""Every checkpoint that was kept is opened and gone on from, with the output of one thread."""

import pathlib
import zipfile

import pytest

from anabranch.testing import ParallelRun
from tests.state.kept.programs import CLOCKS_MS, KEPT, program, tuples

FORMS = sorted(pathlib.Path(__file__).parent.joinpath("kept").glob("form-*.zip"))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
@pytest.mark.parametrize("channels", [2, 3])
def test_a_checkpoint_of_an_earlier_form_is_gone_on_from(form, channels, tmp_path):
    with zipfile.ZipFile(form) as packed:
        packed.extractall(tmp_path)
    stream = program(len(tuples()))
    run = ParallelRun(stream, str(tmp_path), channels=channels, clocks_ms=CLOCKS_MS)
    assert run.runner.epochs_done == KEPT, "the checkpoint was opened, not begun anew"
    run.run_epochs(KEPT)
    run.end()
    before = program(KEPT).run_sequential(clocks_ms=CLOCKS_MS[:KEPT])
    # The clock of one thread after its last epoch is the clock of the end.
    whole = stream.run_sequential(clocks_ms=CLOCKS_MS[: len(tuples())] + CLOCKS_MS[-1:], ends=True)
    assert whole[: len(before)] == before
    assert run.output == whole[len(before) :]


def test_there_is_a_checkpoint_of_the_first_form():
    assert FORMS[0].stem == "form-1"

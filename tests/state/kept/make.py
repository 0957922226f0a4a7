"""Makes the checkpoint of the form that the files have now: ``python -m tests.state.kept.make``.

To be run once, when the form changes; the file is then kept for ever.
"""

from __future__ import annotations

import pathlib
import tempfile
import zipfile

from anabranch.testing import ParallelRun
from tests.state.kept.programs import CLOCKS_MS, KEPT, program


def make(target: pathlib.Path) -> None:
    """Run the first epochs, with other numbers of channels on the way, and pack the files."""
    with tempfile.TemporaryDirectory() as directory:
        for first, last, channels in ((0, 4, 2), (5, 8, 3), (9, KEPT - 1, 2)):
            run = ParallelRun(program(KEPT), directory, channels=channels, clocks_ms=CLOCKS_MS, versions_kept=2)
            run.run_epochs(first, last)
        root = pathlib.Path(directory)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in sorted(root.rglob("*")):
                if file.is_file():
                    packed.writestr(
                        zipfile.ZipInfo(str(file.relative_to(root))), file.read_bytes(), zipfile.ZIP_DEFLATED
                    )


if __name__ == "__main__":
    kept = pathlib.Path(__file__).parent.glob("form-*.zip")
    newest = max((int(file.stem.removeprefix("form-")) for file in kept), default=0)
    make(pathlib.Path(__file__).parent / f"form-{newest + 1}.zip")

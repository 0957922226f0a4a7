"""What the driver does about an epoch of which keys were taken: runs them again, tells what it found.

the epoch's job ─► samples ─► each operator again, on this thread ─► sink ─► manifest
                                      └─ a difference: a file beside the checkpoint's, and VerifyError;
                                         nothing of the epoch is written
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence

from anabranch.engine.thread_settings import ThreadSettings
from anabranch.engine.verifying.comparing import first_difference, merged
from anabranch.engine.verifying.difference_files import DifferenceRecord
from anabranch.engine.verifying.plain_operators import PlainCode
from anabranch.engine.worker.samples import StepSample
from anabranch.engine.worker.sampling import Sampling, not_sampled
from anabranch.engine.worker.tasks import Program
from anabranch.errors import StateError, VerifyError
from anabranch.operators.epoch_context import EpochContext, running
from anabranch.operators.hot_key_parts import HotKeyParts
from anabranch.state.files import Files

_log = logging.getLogger("anabranch")


@dataclasses.dataclass(frozen=True)
class VerifySettings:
    """What the user chose."""

    chance: float = 0.0
    """That a key has, in each epoch, to be run again."""
    action: str = "fail"
    """What follows a difference: ``fail`` or ``report``."""


@dataclasses.dataclass(frozen=True)
class Verified:
    """What was run again of an epoch, and found."""

    keys: int = 0
    tuples: int = 0
    differences: int = 0
    seconds: float = 0.0
    files: tuple[str, ...] = ()


class Verifier:
    """Runs samples of epochs again."""

    def __init__(self, program: Program, settings: VerifySettings, files: Files, thread: ThreadSettings) -> None:
        self._settings = settings
        self._files = files
        self._written = program.written
        self._running = {step.node.name: step.node for step in program.layout.steps}
        self._codes: dict[str, PlainCode] = {}
        self._thread = thread
        self.not_covered: dict[str, str] = {}
        """Operator → why it is not run again."""
        for step in program.layout.steps:
            why = not_sampled(step.node) or ("" if step.node.name in self._written else "the compiler made it")
            if step.node.inputs and why:
                self.not_covered[step.node.name] = why

    def sampling(self, epoch: int) -> Sampling | None:
        """Which keys of an epoch are taken; None: none."""
        return Sampling.of_epoch(epoch, self._settings.chance)

    def check(
        self, samples: Sequence[StepSample], epoch: int, clock_ms: int, parts: Mapping[str, HotKeyParts]
    ) -> Verified:
        """Run what was taken of an epoch again; VerifyError if a difference is to end the query."""
        began = time.perf_counter()
        by_operator: dict[str, list[StepSample]] = {}
        for sample in samples:
            by_operator.setdefault(sample.operator, []).append(sample)

        def check_all() -> Verified:
            verified = Verified()
            with running(EpochContext(clock_ms, parts)):
                for name in self._running:
                    if name in by_operator and name not in self.not_covered:
                        verified = self._checked(by_operator[name], epoch, clock_ms, verified)
            return verified

        found = self._thread.own_context().run(check_all)
        return dataclasses.replace(found, seconds=time.perf_counter() - began)

    def _checked(self, samples: Sequence[StepSample], epoch: int, clock_ms: int, so_far: Verified) -> Verified:
        sample = merged(samples)
        code = self._code(sample.operator)
        if code is None:
            return so_far
        so_far = dataclasses.replace(
            so_far, keys=so_far.keys + len(sample.states), tuples=so_far.tuples + sample.tuples
        )
        difference = first_difference(code, sample)
        if difference is None:
            return so_far
        record = DifferenceRecord.of(code, sample, difference, epoch, clock_ms)
        file = f"differences/{epoch:012d}-{sample.operator}.json"
        self._files.write(file, record.to_json())
        place = f"{self._files.root}/{file}"
        if self._settings.action == "fail":
            raise VerifyError(
                f"verify: {record.text()}\nNothing of the epoch was written. {place} has all of it: "
                "anabranch.testing.replay(stream, file) runs it again. If the operator depends on nothing but its "
                "tuples and its state, this is an error of Anabranch's; until it is mended, @ab.model(state='unknown') "
                "runs the operator in one channel, and option('verifyAction', 'report') goes on regardless.",
                place,
            )
        _log.error("verify: %s\n%s has all of it", record.text(), place)
        return dataclasses.replace(so_far, differences=so_far.differences + 1, files=(*so_far.files, place))

    def _code(self, operator: str) -> PlainCode | None:
        if operator not in self._codes:
            try:
                self._codes[operator] = PlainCode(self._written[operator], self._running[operator])
            except (StateError, KeyError) as problem:
                self.not_covered[operator] = f"it cannot be copied: {problem}"
                return None
        return self._codes[operator]

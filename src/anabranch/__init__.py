"""Stream programs written for one thread, run on Spark in parallel, with the output one thread would give.

General layout. Users touch what is named below; everything else is private.

    api/           session, stream, operators, windows, writer, query handle
    compiler/      pure: the graph, what is safe to run in parallel, the plan
    flow/          pure: tuples, trails, stages, packets, streaming mergers, the sequential run
    partitioning/  pure: hashing, key groups, which channel owns which key, and which should
    control/       pure: how many channels a region should have
    state/         codec, segments, checkpoint
    spark/         the only place that imports pyspark at run time
    sim/           the same code in virtual time
    errors.py      every error the user can see
"""

# The function `state` below has the name of a subpackage. Importing a subpackage binds its name here, once, the
# first time: so that must happen before, or the function would be replaced by the module.
import anabranch.state as _state_package  # noqa: F401
from anabranch import errors
from anabranch.api import agg
from anabranch.api.events import Decided, EpochEnded, ExecutorsChanged, Rescaled
from anabranch.api.operators import Operator, state, store, stores
from anabranch.api.patterns import step
from anabranch.api.progress import show_progress
from anabranch.api.session import FeedbackStream, Session, feedback, from_rows, session
from anabranch.api.stream import Stream
from anabranch.api.windows import count, delta, event_time, punctuation, sliding, time, tumbling
from anabranch.compiler.model import model
from anabranch.errors import AnabranchError
from anabranch.flow.schema import Row, Schema

__all__ = [
    "AnabranchError",
    "Decided",
    "EpochEnded",
    "ExecutorsChanged",
    "FeedbackStream",
    "Operator",
    "Rescaled",
    "Row",
    "Schema",
    "Session",
    "Stream",
    "agg",
    "count",
    "delta",
    "errors",
    "event_time",
    "feedback",
    "from_rows",
    "model",
    "punctuation",
    "session",
    "show_progress",
    "sliding",
    "state",
    "step",
    "store",
    "stores",
    "time",
    "tumbling",
]
__version__ = "0.1.0.dev0"

"""Stream programs written for one thread, run on Spark in parallel, with the output one thread would give.

General layout. Users touch what is named below; everything else is private.

    program/       graph, schema, models: frozen data
    operators/     what the library brings; runs in workers
    compiler/      reading code, models with reasons, layout, rewriting, explaining
    partitioning/  control/    pure decisions: which channel owns which key, how many channels there are
    state/         codec, segments, lineages, checkpoint
    engine/        an epoch, worker side and driver side, without pyspark
    spark/         the backend, the only place that imports pyspark at run time
    api/           what users touch: session, stream, writer, query handle
    papers/        the papers' own machine, for their figures
    sim/           the product in virtual time
    testing.py     programs without a cluster          cli.py   looking into checkpoints
    errors.py      every error the user can see        faults.py   where tests may let it die
"""

# The function `state` below has the name of a subpackage. Importing a subpackage binds its name here, once, the
# first time: so that must happen before, or the function would be replaced by the module.
import anabranch.state as _state_package  # noqa: F401
from anabranch import errors
from anabranch.api.accumulating import accumulator
from anabranch.api.declarations import Operator, broadcast, state, store, stores
from anabranch.api.events import Decided, EpochEnded, ExecutorsChanged, Rescaled
from anabranch.api.keys import key
from anabranch.api.partitions import partition_of, partitions_of
from anabranch.api.progress import show_progress
from anabranch.api.refreshed_tables import table
from anabranch.api.session import FeedbackStream, Session, feedback, from_rows, session
from anabranch.api.sharing import share
from anabranch.api.stream import Stream
from anabranch.errors import AnabranchError
from anabranch.operators import agg
from anabranch.operators.pattern_matching import step
from anabranch.operators.running_windows import running
from anabranch.operators.windows import count, delta, event_time, punctuation, sessions, sliding, time, tumbling
from anabranch.program.model import Load, model
from anabranch.program.schema import Row, Schema

__all__ = [
    "AnabranchError",
    "Decided",
    "EpochEnded",
    "ExecutorsChanged",
    "FeedbackStream",
    "Load",
    "Operator",
    "Rescaled",
    "Row",
    "Schema",
    "Session",
    "Stream",
    "accumulator",
    "agg",
    "broadcast",
    "count",
    "delta",
    "errors",
    "event_time",
    "feedback",
    "from_rows",
    "key",
    "model",
    "partition_of",
    "partitions_of",
    "punctuation",
    "running",
    "session",
    "sessions",
    "share",
    "show_progress",
    "sliding",
    "state",
    "step",
    "store",
    "stores",
    "table",
    "time",
    "tumbling",
]
__version__ = "0.1.0.dev0"

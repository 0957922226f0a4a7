"""What runs in the tasks of an epoch, in the order the data flows.

file_pieces.py     files that tasks read themselves, where that is what Spark reads
splitters.py       takes a source's pieces, runs what needs no state, routes
local_channels.py  channels that run where their source is read
exchange.py        what crosses between tasks: packets, headers, results, reports
packet_files.py    how it crosses on one machine
packets.py, trails.py   columns with the numbers that keep order
tasks.py           the channels of a depth; follow_task.py   copies of what they write, on other hosts;
                   compact_task.py, compacting_process.py   segments that become one
late_files.py      files of which conditions are asked first, and the other columns read later, if at all
batch.py           tuples as rows or columns, whichever is asked for; late_columns.py   columns that are not read yet
condition_columns.py   conditions of filters, asked of whole columns
column_steps.py    functions that read single columns, and needed_columns.py   what nobody reads
equal_values.py    tuples that are equal in what such a function reads
batch_function_steps.py   functions of whole batches
key_slots.py       keys of a batch as dense numbers, and folds over them: what running_columns.py, window_columns.py,
                   session_columns.py, clock_columns.py, join_columns.py, top_columns.py and seen_columns.py compute
                   such operators of all keys at once with; latest_columns.py   running aggregates of updates
timed_columns.py   what windows and sessions have in common there: fold_columns.py   their aggregations,
                   timeline.py, waiting_columns.py   how far time comes, since when keys wait, which joins ask too
slot_columns.py    users' methods over columns and slots, slot_sums.py   those that only add up
enrich_columns.py  tables asked for whole batches
elastic_steps.py   what an elastic operator does with a batch; unordered_step.py   the same where nobody minds order
accumulating_step.py   what elastic accumulators do with a batch
accumulating_calls.py  their epoch: runs of tuples, and the end of the input
guarded_steps.py   what an operator whose calls may fail does with one
worker_pools.py    the pools of a worker process, and what the processes of a host learnt
stage.py, stage_flow.py, batches.py    a stage's operators over a batch at a time
arrival_calls.py   operators that read several streams, or wait: call by call
advances.py        watermarks on their way; timed_calls.py   operators whose keys wait for a time
retracing.py, retraced_calls.py    the same, one tuple after the other: the first error of an epoch that failed
retraced_ahead.py                  … with the calls of elastic operators made ahead, many at a time
timing.py, measuring.py  what single keys cost
watching.py        what was declared, watched on the first tuples
sampling.py        what tasks take down of keys that are run again
samples.py         … and how that is kept and travels
output_files.py    output that tasks write themselves
output_mergers.py  ordered output, written in parallel
explained_code.py  what tasks run for each operator, for people
"""

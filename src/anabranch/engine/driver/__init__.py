"""What runs between the tasks of epochs.

runner.py          the course of an epoch, from its begin to its manifest
program_description.py   what of a program its checkpoint depends on
setup.py           what a runner is given: settings, storage, backend, observer
epoch_jobs.py      the tasks of an epoch, made and run; job_failures.py   why they failed
sparing.py         epochs without the shuffle that a partitioned source spares
output_ways.py     who writes which output: the driver, mergers, or those who make it
committer.py       manifests, and the compaction of segments beside the epochs
event_times.py     watermarks between epochs
drain.py           epochs for what was fed back, when there is nothing to read
output_directory.py   a directory of output files that one owner publishes at a time
latest_rows.py     of a table of updates the last row of each key
output_partitions.py  output in directories by the values of columns; parquet_files.py   several files at once
results.py, sink.py, feedback.py, epoch_progress.py
adaptation.py      what changes between two epochs: scaling.py, balancing.py, epoch_sizing.py
placing.py         where channels run and who has copies, from epoch to epoch
switching.py       going over to another form of the program
waiting.py, slot_need.py   what the driver knows of its surroundings, and needs of them
"""

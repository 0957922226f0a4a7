"""The Spark backend: the only place that imports pyspark at run time.

spark_session.py, java.py     a local Spark, with a Java runtime that is found or brought along
source.py, row_files.py       streaming DataFrames in the order of their data; rows in memory as files
narrowing.py                  of the rows that Spark reads, the columns that somebody reads
partition_column.py           the partition of every row, for those who write what is read partitioned
direct_files.py               sources whose files tasks read themselves
read_limits.py                how many files an epoch takes, replaced while a query runs
spark_job.py                  the tasks of an epoch as one Spark job; compactions as another
local_jobs.py                 the same on one machine: a small job, with files between the tasks
worker_garbage.py             what a worker need not look through after every task
placement.py, standbys.py     channels on the executors that have their state; copies of it on others
warming.py                    executors that came later, made ready for them
sinks.py                      where output goes
hadoop_files.py, batch_log.py files that only Hadoop reaches; what Spark wrote down of its batches
cluster.py, slots.py          executors, and how many tasks run at once
stopping.py                   an epoch that is cut off when its query is stopped
spark_failures.py             another driver or the disk, told as such when Spark fails of it
assemble.py                   all of it put together for one query
"""

"""What an epoch is, on either side, without pyspark.

sequential.py   the meaning of a program: one tuple after the other
job.py          the tasks of an epoch, as data
worker/         what runs in tasks
driver/         what runs between them: the epoch's course, its commit, adaptation
merging/        putting in order what several workers give out of order
"""

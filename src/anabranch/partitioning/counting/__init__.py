"""What is known of a region's keys: counted in tasks, put together in the driver.

tally.py            a task's count of what it routes
lossy_counter.py    frequent keys in bounded space      sliding_counter.py   over the last rows only
key_costs.py        what single keys cost, as measured
knowledge.py        all of it, over about the last epochs
workload.py         what a construction may look at
"""

"""Where keys should be: constructions, what they promise, and when one of them is worth its migration.

planner.py          when the function changes: a state machine, period by period
construct.py        how: one of the constructions, and what to expect of its result
weigh.py            ours, the default; weigh_problem.py, weigh_keys.py, weigh_ring.py are its parts
deal.py             ours where key groups are owned in bundles
scan.py, redist.py, readj.py   the paper's; placement_problem.py is what they solve, utility.py what they want
metrics.py          how good a function is
hot_key_ways.py     keys too hot for one channel: over how many to split them
"""

"""Which hosts hold the standbys of which groups of keys (pure; sections 6 and 7 of *Resources*).

A standby is made so that state survives its host. It is also the cheapest way to move load: a host that holds one can
take the group over without fetching its state. So standbys should be where there will be room when their group grows:
on hosts whose own groups are idle then, that is, whose loads are correlated as negatively as possible with the group's.

    allocation_problem.py   what is known (hosts, owners, loads, correlations), what an allocation costs and may do;
                            correlations and loads from what was measured period by period
    allocate.py             three ways of the paper: baseline, even, correlated (Algorithm 3)
    repair.py               what is moved when owners, loads or hosts have changed: a few standbys, never all

How it is used, once a period:

>>> from anabranch.partitioning.allocating.allocation_problem import AllocationProblem, score
>>> from anabranch.partitioning.allocating.allocate import correlated
>>> from anabranch.partitioning.allocating.repair import handed_over, repaired
>>> loads = {"a": [1.0, 2.0, 3.0], "b": [3.0, 2.0, 1.0], "c": [1.0, 2.0, 3.1]}
>>> problem = AllocationProblem.measured(loads, owners={"a": "x", "b": "y", "c": "z"}, hosts=("x", "y", "z"))
>>> allocation = correlated(problem)
>>> allocation  # a and c grow while b shrinks
{'a': ('y',), 'b': ('x',), 'c': ('y',)}
>>> moved = handed_over(allocation, "a", old="x", new="y")  # what the old owner had is the standby now
>>> moved["a"]
('x',)
>>> now = AllocationProblem.measured(loads, owners={"a": "y", "b": "y", "c": "z"}, hosts=("x", "y", "z"))
>>> [(move.group, move.source, move.target) for move in repaired(now, moved, epsilon=1.0).moves]
[('b', 'x', 'z')]
"""

"""The cluster of *Resources*: how a key group moves by its checkpoint, and what checkpoints are good for where.

messages.py      what instances of operators send each other: data and control, fast and normal
instances.py     an upstream instance with its buffers; an instance that has state, or a checkpoint, of the group
migrating.py     a group, its upstream instances and its nodes in virtual time: direct, CPA (Algorithm 1), CPAL (2)
adapting.py      nodes and groups as loads, period by period: a simple adaptation, and how many of its migrations
                 a checkpoint assists under an allocation of `partitioning/allocating`
improve.py       ours: local improvement of an allocation, where constraint 2 binds; and the optimum of small cases
load_courses.py  courses of load, fixed beforehand: three families, and the jobs of section 7
"""

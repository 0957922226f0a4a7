"""Which channel owns which key (pure): the function, what it is built from, when it is built anew.

General layout, in the order the data flows:

    ring.py → function.py     key groups to channels by a weighed ring, hot keys by a map; who has to look where for
                              state when one function follows another
    source_partitions.py      the function of sources that are partitioned by key already
    resources.py              β of *Partitioning*: how the load of a key grows with its frequency
    threshold.py              δ: from which frequency on a key is hot
    counting/                 what is known of keys
      tally.py                  a task's count of what it routes
      lossy_counter.py          frequent keys in bounded space; sliding_counter.py: over the last rows only
      key_costs.py              what single keys cost, as measured
      knowledge.py              all of it, over about the last epochs, in the driver
      workload.py               what a construction may look at
    placing/                  what follows from it
      planner.py                when the function changes: a state machine, period by period
      construct.py              how: one of the constructions, and what to expect of its result
        weigh.py                  ours, the default (weigh_problem.py, weigh_keys.py, weigh_ring.py)
        deal.py                   ours where key groups are owned in bundles
        scan.py, redist.py, readj.py   the paper's (placement_problem.py: what they solve; utility.py: what they want)
      metrics.py                how good a function is
      hot_key_ways.py           keys too hot for one channel: over how many to split them
    allocating/               which hosts hold the standbys of which groups
      allocation_problem.py     what is known, what an allocation costs and may do; correlations of measured loads
      allocate.py               baseline, even, correlated (Algorithm 3 of *Resources*)
      repair.py                 what is moved when owners, loads or hosts have changed
      improve.py                ours: local improvement; the optimum of small cases
"""

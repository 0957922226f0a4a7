"""The papers' own machines, for reproducing their figures: nothing of the product imports them.

safe_plan.py, safe_regions.py   the plan of *Safe*: regions with joints, strategies, processing elements
merging/     putting in order what channels give out of order: the mergers of *Safe*
streaming/   the parts of a region that never ends: splitter.py (*Safe*), channel.py, and migration.py, what
             changes its owner when one partitioning function follows another (*Elastic*: donate, then collect)
machine/     a discrete-event world that runs these parts, and the product's planners and controllers, in
             virtual time
fluid/       regions without tuples, only rates: pipeline.py; the SASO numbers of any policy on it: saso.py,
             saso_report.py; families of trouble: traces.py
resources/   the cluster of *Resources*: migrations by checkpoints message by message, and which of them a
             checkpoint assists, by loads
"""

"""Regions as pipes: what controllers are developed on, and measured by.

pipeline.py       regions in series under load, without tuples, only rates
saso.py           stability, accuracy, settling, overshoot of any policy      saso_report.py   as tables
traces.py         families of trouble                                         compound_traces.py   of several at once
shared_hosts.py   … of regions that share cores
"""

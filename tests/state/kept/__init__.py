"""Checkpoints that earlier versions wrote, one for each form the files have had; `make.py` made them.

A checkpoint here is never made again: it is what somebody's disk holds. A change of the files' form adds one.
"""

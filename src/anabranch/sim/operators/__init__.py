"""Elastic operators in virtual time: the production's pools and controllers over machines that are not there.

simulated_time.py      the clock; whoever waits in it takes turns with the others, so that every run is the same
machines.py            what calls run on: cores that are shared, permits, a service that suffers from crowds
simulated_crew.py      the workers of a pool on such a machine
operator_world.py      pools under a controller for a while, and what was seen of them
"""

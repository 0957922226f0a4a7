"""Putting in order what several workers give out of order: the mergers of the *Safe* paper.

strategies.py        which strategy an operator's selectivity and routing allow (section 3.4)
ordering.py          what a tuple carries for each; punctuation.py    what travels between tuples
merger.py            the merger of a strategy: merger_base.py is what they have in common,
                     merger_round_robin.py, merger_numbered.py, merger_indexed.py are the three kinds
"""

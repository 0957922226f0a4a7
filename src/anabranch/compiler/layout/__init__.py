"""What runs where: chains of operators that are safe together, then stages and the shuffles between them.

plan_data.py     models and layout, frozen
chains.py        what may run in parallel together            punctuations.py   whose punctuations are waited for
stages.py        the layout: steps, edges, stages             laying_out.py   how it is made
pragmas.py       isolate and colocate                         order_needs.py   which edges carry trails
runnable.py      an operator as it runs                       hot_key_split.py   aggregations in two steps
source_spread.py   sources dealt out to channels              computed_keys.py   keys that are no columns
partitioned_source.py   sources that spare a shuffle     analysis.py   from a node to its model, and its rewritten logic
error_policies.py   dead letters as streams
"""

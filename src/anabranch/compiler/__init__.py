"""From a graph of operators to what runs (pure): properties with reasons, chains, layout, explain.

General layout, in the order the data flows:

    reading/      the code of an operator, followed with abstract values: facts, each with its line
    models/       what they show: state, key, selectivity, forwarding, as a model with reasons
    rewriting/    an operator as it runs: dicts that become managed state, methods that work on columns
    layout/       the program: chains, stages, what runs where
    explaining/   the same, told to a person
    compile.py    the front door: nodes in, a plan out
    plan.py       what comes out: a program that can be explained
"""

"""From a graph of operators to a plan (pure): properties with reasons, regions, strategies, explain.

General layout, in the order the data flows:

    graph.py                                the program
    source.py → values.py, known/           an operator's code, and what it is read with
    facts.py, frames.py                     what reading brings to light; where it stands
    context.py → attributes.py → subscripts.py → displays.py → operators.py → expressions.py
      → methods.py → library.py → specials.py → functions.py → calls.py → emitting.py
      → patterns.py → statements.py → reader.py                                              the reading
    inference.py → keys.py, selectivity.py, forwarding.py → findings.py                      what it shows
    model.py, analysis.py, rewrite.py       the model of an operator; case 2 becomes managed state
    regions.py, strategies.py, program.py   the program: regions, joints, ordering, processes
    plan.py, explain.py, drawing.py         the frozen plan, its fingerprint, its explanation

The front door is `compile_program` in program.py.
"""

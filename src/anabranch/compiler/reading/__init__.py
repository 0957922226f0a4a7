"""Reading the code of operators: an abstract interpreter over Python's syntax trees.

A reading is a state (`Reading`) and tables of handlers, one function of the reading and the node for each type of
syntax node. The files, each importing only those above it:

    values.py              what is known of a value: abstract values
    heap.py                the objects made while code is read, and what is in them
    facts.py               what reading brings to light, each with its line
    frames.py              where the reading stands: variables, paths, functions being read
    known/                 what is known of Python, its library and numpy, by identity
    kinds.py               what can be told of a class without running anything
    reading_state.py       `Reading`: the state, and the few ways to do something that matters
    tameness.py            whose special methods are Python's own
    attributes.py          t.column, self.total, module.name
    subscripts.py          t["column"], d[key]; entries of dicts that are state
    displays.py            (a, b), {"k": v}, f"{x}"; going through them
    operations.py          a + b, a < b, a in b, a and b
    names.py               names, constants, lambdas
    assigning.py           =, +=, del
    comprehensions.py      [f(x) for x in xs]
    method_calls.py        xs.append(x), t.but(k=v), methods of dicts that are state
    library_calls.py       sorted(xs), math.sqrt(x): functions in the tables of known/
    builtin_calls.py       getattr, type, super, print: built-ins that need care
    emitting.py            return, yield, emit(t)
    user_functions.py      calls that are followed into their bodies
    settings_calls.py      getcontext().prec = 9, os.chdir(p): settings that later calls work by
    calls.py               any call: which of the above it is
    match_patterns.py      the patterns of a match
    outliving.py           what a call leaves behind, and whether it could be kept
    statements.py          if, for, try, with: the walk along the paths
    read_operator.py       the front door: `read` puts the tables together and reads one operator
    read_functions.py      functions that an operator of the library calls, read together

The entrances for the rest of the compiler are `read_operator.read` and `read_functions.read_functions`.
"""

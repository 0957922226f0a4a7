"""A fuzzer for inference: operators nobody thought of, judged by the compiler and run on the product's own path.

trials.py       a program as text; its verdict, and whether parallel is sequential: many programs in one run
cells.py        pieces of state of many shapes, and pieces of work that keep nothing
generated.py    operators made of such pieces, which are safe or not by construction
detours.py      other ways to one and the same object
mutations.py    changes of an operator's code that leave what it does: aliases, wrappings, closures, inheritance
sources.py      the operators of the corpus and its mutants, as programs to try and to change
handed_over.py  operators of several functions, one of which leaves an object that another changes
"""

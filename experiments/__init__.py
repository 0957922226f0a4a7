"""The experiments of the papers, one file per figure or table, on the system's own code.

    python -m experiments            all, into docs/reproduction.md; perhaps a quarter of an hour on an idle core
    python -m experiments --quick    the same on coarser grids, into build/; about two minutes of CPU time

A file named ``PAPER_figure_NN.py`` (or ``_table_NN``) has one function, ``run(quick)``, which returns a
`Reproduction`: what was measured, the paper's statements beside it, a drawing. Files with a leading underscore
hold what several figures share. No verdict is written by hand: `statements.py` decides from the numbers.
"""

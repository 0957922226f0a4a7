"""The experiments of the papers, on the system's own code.

    python -m experiments            all, into docs/reproduction.md; perhaps a quarter of an hour on an idle core
    python -m experiments --quick    the same on coarser grids, into build/; about two minutes of CPU time
    python -m experiments NAME --tables    one of them, and everything it measured

A figure or table of a paper is a function, ``figure_NN(quick)`` or ``table_NN(quick)``, which returns a
`Reproduction`: what was measured, the paper's statements beside it, a drawing. No verdict is written by hand:
`statements.py` decides from the numbers. Every module has a table of its ``FIGURES``.

    kernels.py                 machines and application kernels of *Safe*, in virtual time
      safe_order.py              Table 1, Figure 9
      safe_scaling.py            Figures 7, 10, 11, 13
    elastic_world.py           regions under a controller
      elastic_kernels.py         Figures 5 to 8
      elastic_micro.py           Figures 9 to 12, 19
      elastic_load.py            Figures 13 to 18
    partitioning_world.py      Zipf keys, channels added one by one
      partitioning_balance.py    Figures 3 to 5
      partitioning_settings.py   Figures 6 to 8
      partitioning_costs.py      Figures 9 to 14
    operators_world.py         the machines and the work of *Operators*, in virtual time
      operators_levels.py        Figures 4 and 5
      operators_sharing.py       Figures 6 and 7
    resources_migration.py     what a migration of *Resources* costs: Figures 5 and 6
    resources_allocation.py    … and which are assisted: Figures 7 to 9
    statements.py → reproduction.py → drawing.py, report.py    from numbers to verdicts, pictures and the document
"""

"""The papers' own machine, for reproducing their figures: nothing of the product imports it."""

"""What was read, as models with reasons: state, key, selectivity, what is passed on unchanged.

    findings.py         `Inference`: what reading one operator led to
    key_proof.py        the key, from the expressions with which state is indexed
    selectivity.py      how many tuples it emits for one
    forwarding.py       which columns are copies of columns of the input
    inference.py        reads an operator, first as if it had no state, then with its dicts as state
    blocks.py           facts that keep an operator sequential, as reasons and remedies
    users_functions.py  what functions do that an operator of the library calls
    sharing_members.py  what operators do that share state
    built_in.py         models of sources, sinks and the library's own operators
    elastic_models.py   what may have several calls under way at once

The models themselves are data of the program (`program/model.py`): what runs needs them, too.
"""

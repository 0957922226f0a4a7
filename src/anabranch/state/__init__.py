"""Managed state: from values to the files that a restart reads.

codec.py, maps.py             values as bytes; managed maps
user_objects.py               objects of the user's classes as data
shared_fields.py              one object in two places of a key's state
broadcast_state.py            what all keys of an operator see, as values and as bytes
segment.py, records.py        immutable sorted files of state, and what manifests say of them
slices.py                     segments cut between bundles of key groups
segment_cache.py              segments that a process keeps open
state_columns.py              state as Arrow columns, for operators that compute all keys at once
slot_lists.py                 state as lists by slot, for users' methods
deltas.py                     large values that changed a little
table.py, store.py            the state of an operator as a channel sees it; all of a task's
stored_state.py               what segments have of it
lineage.py, compaction.py     which segments are the state, and when one is made of several
key_owners.py                 which channel owns which keys, generation by generation
checkpoint.py, manifest_facts.py, adaptation_facts.py   epochs begun and committed
envelope.py, ownership.py     checksums and identities of files; one driver at a time
described_program.py          what of a program its checkpoint depends on
program_changes.py            what another version of a program does to its state
renaming.py                   operators that have another name than in the checkpoint
files.py, object_files.py     where files are: on a path, in memory, in an S3 store; azure_files.py   in Azure's
following.py                  standby copies, fetched in the background
host_cache.py, backing.py     what a host keeps of segments that are elsewhere; a store between hosts that share none
rescale_requests.py           rescalings by hand that no epoch has followed yet
reader.py                     looking into a checkpoint
"""

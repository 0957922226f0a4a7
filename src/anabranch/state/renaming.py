"""Operators that have another name than in the checkpoint: state, owners, watermarks and loops under the new one.

Nothing is written for it: a manifest that an earlier version of the program left is read as if it had the names of now,
each time, until an epoch of the program is committed under them. Files keep the names they have.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TypeVar

from anabranch.state.adaptation_facts import AdaptationFacts
from anabranch.state.checkpoint import Manifest
from anabranch.state.described_program import DescribedOperator
from anabranch.state.key_owners import KeyOwners, Region
from anabranch.state.program_changes import new_names

_Value = TypeVar("_Value")


def renamed_manifest(manifest: Manifest, operators: Iterable[DescribedOperator]) -> Manifest:
    """A manifest as the program with these operators would have written it."""
    facts = manifest.facts
    known = {
        *manifest.segments,
        *facts.watermarks.values,
        *facts.watermarks.heard_ms,
        *facts.feedback,
        *facts.broadcasts,
        *facts.tables,
        *(operator for region in facts.owners.regions.values() for operator in region.routes),
    }
    names = new_names(operators, known)
    if not names:
        return manifest
    segments = {
        names.get(operator, operator): [
            dataclasses.replace(
                record,
                operator=names.get(operator, operator),
                parts=tuple(dataclasses.replace(part, operator=names.get(operator, operator)) for part in record.parts),
            )
            for record in records
        ]
        for operator, records in manifest.segments.items()
    }
    watermarks = dataclasses.replace(
        facts.watermarks,
        values=_renamed(facts.watermarks.values, names),
        heard_ms=_renamed(facts.watermarks.heard_ms, names),
    )
    owners = dataclasses.replace(facts.owners, regions=_regions(facts.owners, names))
    loops, told = _renamed(facts.feedback, names), _renamed(facts.broadcasts, names)
    facts = dataclasses.replace(facts, watermarks=watermarks, owners=owners, feedback=loops, broadcasts=told)
    facts = dataclasses.replace(
        facts, adaptation=_adaptation(facts.adaptation, names), tables=_renamed(facts.tables, names)
    )
    return dataclasses.replace(manifest, segments=segments, facts=facts)


def _adaptation(facts: AdaptationFacts, names: Mapping[str, str]) -> AdaptationFacts:
    """What was learnt of regions, which have the names of the operators at their entries."""
    scaling = dataclasses.replace(facts.scaling, controllers=_renamed(facts.scaling.controllers, names))
    return dataclasses.replace(facts, scaling=scaling, balancing=_renamed(facts.balancing, names))


def _regions(owners: KeyOwners, names: Mapping[str, str]) -> dict[str, Region]:
    """A region has the name of the operator at its entry."""
    return {
        names.get(name, name): dataclasses.replace(region, routes=_renamed(region.routes, names))
        for name, region in owners.regions.items()
    }


def _renamed(found: Mapping[str, _Value], names: Mapping[str, str]) -> dict[str, _Value]:
    return {names.get(name, name): value for name, value in found.items()}

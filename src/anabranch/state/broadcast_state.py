"""The broadcast state of an operator, in the run of one thread and in every channel: the same code, the same values.

It is kept as bytes from one tuple of the broadcast stream to the next. Each of these tuples finds values made anew of
the bytes, so what a key took of them (a list, say) stays as it was when the key took it; and what somebody changed in
between, who may not, is found. Both cost what the state is long, for each tuple of the broadcast stream: it is meant to
be small. The driver keeps the bytes in the manifest, once for all channels (`ManifestFacts.broadcasts`).
"""

from __future__ import annotations

from typing import Any

from anabranch.errors import AnabranchError, StateError
from anabranch.program.broadcasting import Held, initial_values
from anabranch.program.calling import Instances, operator_failed
from anabranch.program.graph import Keyed, Node
from anabranch.state.codec import comparable, decode, encode
from anabranch.state.user_objects import UserClasses

BYTES_MAX = 4 * 2**20
"""A manifest holds it, and every task of every epoch is sent it."""


class BroadcastState:
    """What the keys of an operator see alike.

    Parameters
    ----------
    node : Node
        An operator with broadcast state.
    instances : Instances
        Makes the instances that see it.
    data : bytes, optional
        What it was when the epoch began; empty: as it is at first.
    """

    def __init__(self, node: Node, instances: Instances, data: bytes = b"") -> None:
        assert isinstance(node.logic, Keyed) and node.logic.broadcast is not None
        self._node = node
        self._instances = instances
        self._classes = UserClasses(node)
        self._fields = node.logic.broadcast.fields
        self._method = getattr(type(node.logic.prototype), node.logic.broadcast.method)
        assert instances.held is not None
        self._held: Held = instances.held
        self.looked_at = False
        """Keys have seen it since the last tuple, and might have changed what they saw."""
        self.data = data
        """The values as bytes; empty: as they are at first."""
        self._renew()

    def _renew(self) -> None:
        values = initial_values(self._fields)
        if self.data:
            kept = decode(self.data, self._classes)
            values |= {name: value for name, value in kept.items() if name in values}
        self._held.values = values
        self._noted = comparable(values, self._classes)

    def take(self, row: Any, epoch: int | None = None, anew: bool = False) -> None:
        """Take a tuple of the broadcast stream; OperatorError if the user's code fails."""
        self.check(anew)
        self._renew()
        instance = object.__new__(self._instances.kind)
        attributes = vars(instance)
        attributes.update(self._instances.configuration)
        self._held.is_open = True
        try:
            found = self._method(instance, row)
            self._refuse(found, attributes)
            data = encode(self._held.values, self._classes)
            if len(data) > BYTES_MAX:
                raise StateError(
                    f"the broadcast state has {len(data)} bytes, more than {BYTES_MAX}: every channel holds all of it. "
                    "Keep what belongs to a key with the key: enrich(…) or join(…) with the stream"
                )
        except AnabranchError as problem:
            raise StateError(f"operator {self._node.title}: {problem}") from None
        except Exception as problem:
            raise operator_failed(self._node, row, problem, epoch) from problem
        finally:
            self._held.is_open = False
        self.data = data
        self._noted = comparable(self._held.values, self._classes)

    def _refuse(self, found: Any, attributes: dict[str, Any]) -> None:
        if found is not None:
            raise TypeError(
                f"on_broadcast() returned {found!r}; expected nothing: it belongs to no key, and every channel calls it"
            )
        for name, value in attributes.items():
            if name not in self._instances.configuration:
                raise StateError(
                    f"on_broadcast() used self.{name}, the state of a key; a tuple of the broadcast stream comes to "
                    "none. Declare what it changes with ab.broadcast(…)"
                )
            if value is not self._instances.configuration[name]:
                raise StateError(f"on_broadcast() changed self.{name}; declare it with ab.broadcast(…)")

    def check(self, anew: bool = False) -> None:
        """StateError if somebody changed it who may not; `anew`: whether or not `looked_at` says that keys saw it."""
        if not (self.looked_at or anew):
            return
        self.looked_at = False
        if comparable(self._held.values, self._classes) != self._noted:
            raise StateError(
                f"operator {self._node.title}: process() changed its broadcast state in place. All keys share it, so "
                "only on_broadcast(self, t) may change it; take a copy of what a key keeps"
            )

"""A module beside those of operators: what they find in it is not their own."""

TABLE = {"a": 1, "b": 2, "c": 3}


class _Noted:
    def __set__(self, instance, value):
        TABLE[value] = TABLE[value] + 1


class _Notes:
    last = _Noted()


_notes = _Notes()


def note(attributes, key):
    """Change the table, behind a descriptor."""
    _notes.last = key

"""A module of helpers that remember something by themselves: found by its name, it is no operator's own."""

NOTED: dict[str, int] = {}


def noted(key):
    """How often a key was given."""
    NOTED[key] = NOTED.get(key, 0) + 1
    return NOTED[key]


def noted_twice(key):
    """The same, by another function."""
    return noted(key)


class Notes:
    """The same, in a class."""

    seen: dict[str, int] = {}  # noqa: RUF012 - that is what it is about

    @classmethod
    def note(cls, key):
        cls.seen[key] = cls.seen.get(key, 0) + 1
        return cls.seen[key]

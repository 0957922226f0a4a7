"""Every error the user can see."""


class AnabranchError(Exception):
    """The base of all errors that Anabranch raises on purpose."""


class JavaNotFoundError(AnabranchError):
    """The machine has no Java that Spark can run on."""

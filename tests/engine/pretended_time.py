"""What operators of tests sleep by. A module of its own, because it is looked up where it is: whoever replaces `sleep`
here replaces it in the copies of operators, too, which bring their other globals along.
"""

from time import sleep

__all__ = ["sleep"]

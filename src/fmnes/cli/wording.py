"""Messages of the library in the words of problem files and of the command line, which know no Python."""

from __future__ import annotations

import re
from collections.abc import Container

_KEYS = "lower|upper|start|sigma|log|multiple_of"
#: (what Python's users read, what stands in a problem file).
_WORDS = (
    (r"^(\S+: )?(?:Real|Integer): ", r"\1"),
    (r"^(\S+: )?Real \(log\): found ", r"\1found log = "),
    (rf"\b({_KEYS})=(?=[ ,;)]|$)", r"\1"),
    (rf"\b({_KEYS})=", r"\1 = "),
    (r"= True\b", "= true"),
    (r"= False\b", "= false"),
    (r"\bTrue or False\b", "true or false"),
    (r",? or None\b", ""),
    (r" or settings such as AFMNES\(\)", ""),
    (r"as fmnes\.Integer\(0, n - 1\)", "as a whole number (integer = true)"),
    (r"\{'(\w+)': r?('[^']*')\}", r"{ \1 = \2 }"),
    (r"\{'(\w+)': r?('[^']*'), '(\w+)': r?('[^']*')\}", r"{ \1 = \2, \3 = \4 }"),
    (r"^argv\b|(?<=placeholder of )argv\b", "command"),
    (r"\bcopy=", "copy"),
)


def plain_words(message: str) -> str:
    for python, plain in _WORDS:
        message = re.sub(python, plain, message)
    return message


def argument_of(message: str) -> str:
    """The argument that a message is about: its first word."""
    return re.split(r"\W", message, maxsplit=1)[0]


def as_option(message: str, typed: Container[str]) -> str:
    """The same with the option as it was typed, if the message is about one of these."""
    argument = argument_of(message)
    option = f"--{argument.replace('_', '-')}"
    return plain_words(option + message[len(argument) :] if argument in typed else message)

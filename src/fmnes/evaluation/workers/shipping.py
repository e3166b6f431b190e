"""How the objective gets into a worker: as bytes, with those names of its script that it comes with."""

from __future__ import annotations

import io
import os
import pickle
import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

from fmnes.errors import ArgumentError, UsageError


def ship(fun: Callable[[Any], Any]) -> bytes:
    """The function as bytes for our own children. What is defined in the script itself is sent as it is."""
    if not callable(fun):
        raise ArgumentError(f"fun: found {fun!r}, wanted a function of one point")
    _refuse_while_importing()
    import cloudpickle  # only who uses workers needs it

    main = sys.modules.get("__main__")
    names: dict[str, Any] = {}

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        """Notes the functions and classes of the script that it meets."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
                name: str = obj.__name__
                if getattr(main, name, None) is obj:
                    names[name] = obj
            return super().reducer_override(obj)

    buffer = io.BytesIO()
    try:
        # In this order: `names` is complete when `fun` has been pickled.
        Pickler(buffer).dump((fun, names, _whereabouts(main)))
    except Exception as error:
        raise ArgumentError(
            f"fun: found {fun!r}, which cannot be sent to a worker process ({error}); "
            "wanted one without files, locks and the like"
        ) from error
    return buffer.getvalue()


def unpack(function: bytes) -> Callable[[Any], Any]:
    """In the evaluator: the function, with the names of its script where they were at home.

    An objective may itself use multiprocessing, which sends the functions of the script by their names: they
    must be found in `__main__`, here and in what is forked from here. A process that is started otherwise
    imports the script by its path, as it would from the script itself.
    """
    # From our own driver, over a socket that nobody else has.
    fun, names, (path, module) = pickle.loads(function)
    main = types.ModuleType("__main__")
    vars(main).update(names)
    if names:
        if path:
            main.__file__ = path
        main.__spec__ = ModuleSpec(module, None) if module else None
    sys.modules["__main__"] = main
    return fun  # type: ignore[no-any-return]


def _whereabouts(main: types.ModuleType | None) -> tuple[str, str]:
    """What multiprocessing looks at: the path of the script and, after `python -m`, its name."""
    path = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    return os.path.abspath(path) if path else "", spec.name if spec else ""


def _refuse_while_importing() -> None:
    """What a worker starts may import the script: started there, too, workers would multiply without end."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing and getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "workers: found in a process of multiprocessing that is only importing the script; "
            'put the call under `if __name__ == "__main__":`'
        )

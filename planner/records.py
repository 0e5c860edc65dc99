"""Frozen dataclasses that share their methods, so that defining hundreds of them is not what a command waits for.

The standard library writes and compiles six methods for each class, which for ours takes a sixth of the time in which a
scenario is checked. Here a class has its constructor compiled when its first record is made, and shares the rest with
all others. A record is to its users what ``dataclasses.dataclass`` would make of it.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(**options: bool) -> Callable[[type], type]:
        """Return what makes a class a dataclass, with the options that the standard library's own has."""
        if not options.get("frozen") or options.get("order"):
            return dataclasses.dataclass(**options)
        fielded = dataclasses.dataclass(**options | {"frozen": False, "init": False, "eq": False, "repr": False})

        def record(cls: type) -> type:
            made = fielded(cls)
            made.__init__ = _Constructor(made)
            methods = _FROZEN | (_comparison(made) if options.get("eq", True) else {})
            methods |= {"__repr__": _text} if options.get("repr", True) else {}
            for name, method in methods.items():
                if name not in cls.__dict__:
                    setattr(made, name, method)
            return made

        return record


class _Constructor:
    """The ``__init__`` of a record, compiled when somebody asks for it: a command makes none of most records."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, record: object, kind: type | None = None) -> Any:
        self._cls.__init__ = compiled = _constructor(self._cls)
        return compiled.__get__(record, kind)


def _constructor(cls: type) -> Callable[..., None]:
    """Return the ``__init__`` of a record: compiled for it, since it is what is called most."""
    stated = [field for field in fields(cls) if field.init]
    by_place, by_name = ([field.name for field in stated if field.kw_only == is_named] for is_named in (False, True))
    head = ", ".join(["self", *by_place, *(["*", *by_name] if by_name else [])])
    known: dict[str, Any] = {"_MISSING": MISSING, "_set": object.__setattr__}
    lines = [*_lines(fields(cls), known), "self.__post_init__()" if hasattr(cls, "__post_init__") else "pass"]
    exec(f"def __init__({head}):\n " + "\n ".join(lines), known)
    init: Any = known["__init__"]
    defaults = {field.name: field.default for field in stated if _is_optional(field)}
    init.__defaults__ = tuple(defaults[name] for name in by_place if name in defaults)
    init.__kwdefaults__ = {name: defaults[name] for name in by_name if name in defaults}
    init.__annotations__ = {field.name: field.type for field in stated} | {"return": None}
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init  # type: ignore[no-any-return]


def _lines(every: Sequence[Field[Any]], known: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that set the fields of a new record, and note what they call by the names they call it."""
    for field in every:
        name, source = field.name, field.name
        if field.default_factory is not MISSING:
            known[f"_make_{name}"] = field.default_factory
            source = f"_make_{name}()" + (f" if {name} is _MISSING else {name}" if field.init else "")
        elif not field.init:
            if field.default is MISSING:
                continue  # what makes the record whole sets it
            known[source := f"_default_{name}"] = field.default
        yield f"_set(self, {name!r}, {source})"


def _is_optional(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _comparison(cls: type) -> dict[str, Callable[..., Any]]:
    """Return how records of a class are compared and hashed: as tuples of their fields."""
    names = [field.name for field in fields(cls) if field.compare]
    many = operator.attrgetter(*names) if len(names) > 1 else None

    def values(record: Any) -> Any:
        return many(record) if many is not None else tuple(getattr(record, name) for name in names)

    def equal(record: Any, other: object) -> Any:
        return values(record) == values(other) if other.__class__ is record.__class__ else NotImplemented

    def hashed(record: Any) -> int:
        return hash(values(record))

    return {"__eq__": equal, "__hash__": hashed}


@reprlib.recursive_repr()
def _text(record: Any) -> str:
    shown = (f"{field.name}={getattr(record, field.name)!r}" for field in fields(record) if field.repr)
    return f"{record.__class__.__qualname__}({', '.join(shown)})"


def _refuse_to_set(_record: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_record: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(record: Any) -> list[Any]:
    """Return what a pickle or a copy of a record holds."""
    return [getattr(record, field.name) for field in fields(record)]


def _restore(record: Any, state: Sequence[Any]) -> None:
    """Give a new record what a pickle or a copy holds."""
    for field, value in zip(fields(record), state, strict=True):
        object.__setattr__(record, field.name, value)


_FROZEN: dict[str, Callable[..., Any]] = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _restore,
}
"""What no class has of its own."""

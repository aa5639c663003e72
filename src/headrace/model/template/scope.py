"""Which names are local variables at a point of a template, and which are read from the context.

`set` writes into the innermost scope; loops, `with` and `set` blocks open one, `if` does not. A name can be surely set
(always local), perhaps set (only in one branch so far: decided while rendering) or not set (read from the context).
"""

from __future__ import annotations


class Scope:
    """The names that one block of a template sets. Slots are numbered over the whole template."""

    __slots__ = ("_numbers", "_outer", "_slots", "_sure")

    def __init__(self, outer: Scope | None = None) -> None:
        self._outer = outer
        self._numbers: list[int] = outer._numbers if outer is not None else [0]
        self._slots: dict[str, int] = {}
        self._sure: set[str] = set()

    @property
    def slot_count(self) -> int:
        """Slots of the whole template so far."""
        return self._numbers[0]

    @property
    def own_slots(self) -> tuple[int, ...]:
        """Slots of this scope so far, which each entry into its block must empty."""
        return tuple(self._slots.values())

    def set(self, name: str) -> int:
        """From here on the name is surely set, in this slot."""
        if name not in self._slots:
            self._slots[name] = self._numbers[0]
            self._numbers[0] += 1
        self._sure.add(name)
        return self._slots[name]

    def find(self, name: str) -> tuple[tuple[int, ...], bool]:
        """The slots that may hold the name, innermost first, and whether one of them surely does."""
        slots: list[int] = []
        scope: Scope | None = self
        while scope is not None:
            if name in scope._slots:
                slots.append(scope._slots[name])
                if name in scope._sure:
                    return tuple(slots), True
            scope = scope._outer
        return tuple(slots), False

    def sure_names(self) -> frozenset[str]:
        """What is surely set in this scope now: kept before a branch, and given back to `only_sure` after it."""
        return frozenset(self._sure)

    def only_sure(self, names: frozenset[str]) -> None:
        self._sure = set(names)

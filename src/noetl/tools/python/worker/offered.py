"""What code may use without being given it: the frame that it runs for, or the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Offered"]


class Offered:
    """Values by attribute or by key. `rows` of one that has a table are made of it when somebody asks for them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        if name == "rows" and "table" in self.__dict__:
            self.rows = self.__dict__["table"].to_pylist()
            return self.rows
        raise AttributeError(f"there is {', '.join(self.__dict__)}, and no '{name}'")

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def __repr__(self) -> str:
        return f"({', '.join(self.__dict__)})"

"""What is said to a subscriber whose expression cannot be used."""

from __future__ import annotations


class FilterError(ValueError):
    """An expression that is refused: why, and at which character (counted from 0) if that is known."""

    def __init__(self, reason: str, expression: str, position: int | None = None) -> None:
        self.reason = reason
        self.expression = expression
        self.position = position
        super().__init__(reason, expression, position)

    def __str__(self) -> str:
        if self.position is None:
            return f"the filter expression is refused: {self.reason}: {self.expression}"
        rest = self.expression[self.position : self.position + 20] or "the end"
        where = f"at character {self.position + 1} ({rest})"
        return f"the filter expression is refused {where}: {self.reason}: {self.expression}"

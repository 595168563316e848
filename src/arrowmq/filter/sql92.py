"""RocketMQ's SQL92, compiled once into Python functions.

The grammar stands in `sql92.lark`. Each rule becomes an `Operand`: a function from the properties of a message to a
value, and the kind of that value, which is known at compile time: a property is a text or missing, a literal is what it
looks like, everything else is TRUE, FALSE or unknown (`None`). So a comparison picks its conversion when it is
compiled, and a match is a few calls of small functions.

Peculiarities of Apache's filter are kept, because consumers depend on them: a text is converted to the type of the
literal beside it, and if that fails the whole expression matches nothing; the text after a complete expression is
ignored (`a > 1 foo` is `a > 1`); a bare property is never TRUE.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from arrowmq.filter.errors import FilterError
from arrowmq.filter.java_numbers import (
    INTEGER_MAX,
    LONG_MAX,
    Unconvertible,
    compare_doubles,
    parse_boolean,
    parse_double,
    parse_integer,
    parse_long,
)

if TYPE_CHECKING:
    from lark import Lark, Token

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Any]
Comparison = Callable[[Any, Any], int]

# Deeper nesting than this is refused: evaluating it would exhaust the stack.
MAX_DEPTH = 200


class Kind(Enum):
    """What an operand can evaluate to, apart from nothing."""

    TEXT = auto()
    INTEGER = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NOTHING = auto()


NUMBERS = {Kind.INTEGER: parse_integer, Kind.LONG: parse_long, Kind.DOUBLE: parse_double}


@dataclass(frozen=True, slots=True)
class Operand:
    kind: Kind
    evaluate: Evaluate
    position: int
    depth: int = 0
    is_constant: bool = False
    is_property: bool = False


class Refusal(Exception):
    """Raised while an expression is built; `parse` adds the expression itself."""

    def __init__(self, reason: str, position: int) -> None:
        self.reason = reason
        self.position = position
        super().__init__(reason)


def _sign(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def comparison_of(left: Kind, right: Kind) -> Comparison:
    """How values of these two kinds are compared: below zero, zero or above, as Java's compareTo."""
    numbers = NUMBERS
    if left is right:
        return compare_doubles if left is Kind.DOUBLE else _sign
    if left in numbers and right in numbers:
        if Kind.DOUBLE in (left, right):
            return lambda one, other: compare_doubles(float(one), float(other))
        return _sign
    if left is Kind.TEXT and right is Kind.BOOLEAN:
        return lambda one, other: _sign(parse_boolean(one), other)
    if left is Kind.TEXT and right in numbers:
        convert, order = numbers[right], comparison_of(right, right)
        return lambda one, other: order(convert(one), other)
    if left in numbers and right is Kind.TEXT:
        convert, order = numbers[left], comparison_of(left, left)
        return lambda one, other: order(one, convert(other))
    if left is Kind.BOOLEAN and right is Kind.TEXT:
        return _never_comparable
    return lambda one, other: -1


def _never_comparable(left: object, right: object) -> int:
    raise Unconvertible


def _compare_texts_as_doubles(left: str, right: str) -> int:
    return compare_doubles(parse_double(left), parse_double(right))


def _depth(position: int, *operands: Operand) -> int:
    depth = 1 + max(operand.depth for operand in operands)
    if depth > MAX_DEPTH:
        raise Refusal(f"it is nested deeper than {MAX_DEPTH} levels", position)
    return depth


def _condition(operand: Operand) -> Operand:
    """The operand as a condition: a bare property counts as one that is never TRUE."""
    if operand.kind is Kind.BOOLEAN:
        return operand
    if operand.is_property:
        look_up = operand.evaluate
        return replace(
            operand,
            kind=Kind.BOOLEAN,
            evaluate=lambda properties: None if look_up(properties) is None else False,
            is_property=False,
        )
    raise Refusal("a condition is needed here, this gives no TRUE or FALSE", operand.position)


def _check_orderable(operand: Operand) -> None:
    if operand.kind is Kind.BOOLEAN:
        raise Refusal(
            "a condition, TRUE, FALSE or NULL cannot be compared by <, <=, >, >= or BETWEEN", operand.position
        )
    if operand.is_constant and operand.kind not in NUMBERS:
        raise Refusal("only numbers and properties can be compared by <, <=, >, >= or BETWEEN", operand.position)


def _is_null_literal(operand: Operand) -> bool:
    return operand.is_constant and operand.kind is Kind.BOOLEAN and operand.evaluate({}) is None


def _not(evaluate: Evaluate) -> Evaluate:
    def negated(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return negated


def _equal(left: Operand, right: Operand, position: int) -> Operand:
    compare = comparison_of(left.kind, right.kind)
    evaluate_left, evaluate_right = left.evaluate, right.evaluate

    def equal(properties: Properties) -> bool | None:
        one = evaluate_left(properties)
        other = evaluate_right(properties)
        if one is None:
            return True if other is None else None
        return other is not None and compare(one, other) == 0

    return Operand(Kind.BOOLEAN, equal, position, _depth(position, left, right))


_ORDERINGS: dict[str, Callable[[int], bool]] = {
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
}


def _order(left: Operand, symbol: str, right: Operand, position: int) -> Operand:
    _check_orderable(left)
    _check_orderable(right)
    both_texts = left.kind is right.kind is Kind.TEXT
    compare = _compare_texts_as_doubles if both_texts else comparison_of(left.kind, right.kind)
    holds = _ORDERINGS[symbol]
    evaluate_left, evaluate_right = left.evaluate, right.evaluate

    def ordered(properties: Properties) -> bool | None:
        one = evaluate_left(properties)
        if one is None:
            return None
        other = evaluate_right(properties)
        return None if other is None else holds(compare(one, other))

    return Operand(Kind.BOOLEAN, ordered, position, _depth(position, left, right))


def _any(conditions: list[Operand], position: int) -> Operand:
    evaluates = [condition.evaluate for condition in conditions]

    def any_holds(properties: Properties) -> bool | None:
        result: bool | None = False
        for evaluate in evaluates:
            value = evaluate(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return Operand(Kind.BOOLEAN, any_holds, position, _depth(position, *conditions))


def _all(conditions: list[Operand], position: int) -> Operand:
    evaluates = [condition.evaluate for condition in conditions]

    def all_hold(properties: Properties) -> bool | None:
        result: bool | None = True
        for evaluate in evaluates:
            value = evaluate(properties)
            if value is None:
                result = None
            elif not value:
                return False
        return result

    return Operand(Kind.BOOLEAN, all_hold, position, _depth(position, *conditions))


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


_SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, search: search in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class Builder:
    """One method a rule of the grammar; lark calls it when the rule is complete."""

    def disjunction(self, operands: list[Operand]) -> Operand:
        if len(operands) == 1:
            return operands[0]
        return _any([_condition(operand) for operand in operands], operands[0].position)

    def conjunction(self, operands: list[Operand]) -> Operand:
        if len(operands) == 1:
            return operands[0]
        return _all([_condition(operand) for operand in operands], operands[0].position)

    def equality(self, parts: list[Any]) -> Operand:
        left, symbol, right = parts
        for operand in (left, right):
            if _is_null_literal(operand):
                raise Refusal("NULL cannot be compared: write IS NULL or IS NOT NULL", operand.position)
        if left.is_constant and right.is_constant and left.kind is Kind.BOOLEAN and right.kind is not Kind.BOOLEAN:
            raise Refusal("TRUE and FALSE cannot be compared with a text or a number", right.position)
        equal = _equal(left, right, symbol.start_pos)
        return equal if symbol == "=" else replace(equal, evaluate=_not(equal.evaluate))

    def nullness(self, parts: list[Any]) -> Operand:
        operand, keyword, negation, _null = parts
        evaluate_operand = operand.evaluate

        def is_null(properties: Properties) -> bool | None:
            return evaluate_operand(properties) is None

        evaluate = is_null if negation is None else _not(is_null)
        return Operand(Kind.BOOLEAN, evaluate, keyword.start_pos, _depth(keyword.start_pos, operand))

    def ordering(self, parts: list[Any]) -> Operand:
        left, symbol, right = parts
        return _order(left, str(symbol), right, symbol.start_pos)

    def text_search(self, parts: list[Any]) -> Operand:
        operand, negation, keyword, literal = parts
        found, search, wanted = _SEARCHES[keyword.upper()], _text(literal), negation is None
        evaluate_operand, is_text = operand.evaluate, operand.kind is Kind.TEXT

        def matches(properties: Properties) -> bool:
            if not search:
                return False
            text = evaluate_operand(properties)
            return is_text and text is not None and found(text, search) is wanted

        return Operand(Kind.BOOLEAN, matches, keyword.start_pos, _depth(keyword.start_pos, operand))

    def between(self, parts: list[Any]) -> Operand:
        value, negation, keyword, low, high = parts
        position = keyword.start_pos
        if negation is not None:
            return _any([_order(value, "<", low, position), _order(value, ">", high, position)], position)
        both = [_order(value, ">=", low, position), _order(value, "<=", high, position)]
        if low.is_constant and high.is_constant:
            bounds = low.evaluate({}), high.evaluate({})
            if comparison_of(low.kind, high.kind)(*bounds) > 0:
                raise Refusal(f"BETWEEN needs the smaller bound first: {bounds[0]} is above {bounds[1]}", position)
        return _all(both, position)

    def membership(self, parts: list[Any]) -> Operand:
        operand, negation, keyword, *literals = parts
        if not operand.is_property:
            raise Refusal("IN needs a property on its left", keyword.start_pos)
        texts, wanted = frozenset(map(_text, literals)), negation is None
        look_up = operand.evaluate

        def is_member(properties: Properties) -> bool | None:
            text = look_up(properties)
            return None if text is None else (text in texts) is wanted

        return Operand(Kind.BOOLEAN, is_member, keyword.start_pos, 1)

    def unary(self, parts: list[Operand]) -> Operand:
        """A plus sign says nothing."""
        return parts[0]

    def negative(self, parts: list[Any]) -> Operand:
        sign, operand = parts
        evaluate_operand, depth = operand.evaluate, _depth(sign.start_pos, operand)
        if operand.kind in NUMBERS:
            value = -evaluate_operand({})
            return Operand(operand.kind, lambda properties: value, sign.start_pos, depth)

        def nothing(properties: Properties) -> None:
            evaluate_operand(properties)  # it may still fail, and then nothing matches

        return Operand(Kind.NOTHING, nothing, sign.start_pos, depth)

    def negation(self, parts: list[Any]) -> Operand:
        keyword, operand = parts
        depth = _depth(keyword.start_pos, operand)
        return Operand(Kind.BOOLEAN, _not(_condition(operand).evaluate), keyword.start_pos, depth)

    def property(self, tokens: list[Token]) -> Operand:
        name = str(tokens[0])
        return Operand(Kind.TEXT, lambda properties: properties.get(name), _start(tokens[0]), is_property=True)

    def string(self, tokens: list[Token]) -> Operand:
        return _constant(Kind.TEXT, _text(tokens[0]), tokens[0])

    def integer(self, tokens: list[Token]) -> Operand:
        digits = tokens[0].rstrip("lL")
        if len(digits) > 19 or int(digits) > LONG_MAX:
            raise Refusal(f"a number above {LONG_MAX}", _start(tokens[0]))
        value = int(digits)
        return _constant(Kind.INTEGER if value <= INTEGER_MAX else Kind.LONG, value, tokens[0])

    def floating(self, tokens: list[Token]) -> Operand:
        value = float(tokens[0])
        if math.isinf(value):
            raise Refusal("a number above 1.7976931348623157E308", _start(tokens[0]))
        if value == 0.0:
            raise Refusal("a number below 4.9E-324: write zero as 0", _start(tokens[0]))
        return _constant(Kind.DOUBLE, value, tokens[0])

    def true(self, tokens: list[Token]) -> Operand:
        return _constant(Kind.BOOLEAN, True, tokens[0])

    def false(self, tokens: list[Token]) -> Operand:
        return _constant(Kind.BOOLEAN, False, tokens[0])

    def null(self, tokens: list[Token]) -> Operand:
        return _constant(Kind.BOOLEAN, None, tokens[0])


def _start(token: Token) -> int:
    return int(token.start_pos or 0)


def _constant(kind: Kind, value: object, token: Token) -> Operand:
    return Operand(kind, lambda properties: value, _start(token), is_constant=True)


@cache
def _parser() -> Lark:
    # Imported on first use: a server without SQL92 subscriptions starts without it.
    from lark import Lark

    grammar = resources.files("arrowmq.filter").joinpath("sql92.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        start="selector",
        transformer=Builder(),
        maybe_placeholders=True,
        g_regex_flags=re.ASCII,
    )


def parse(expression: str) -> Evaluate:
    """The expression as a function of a message's properties, which gives True, False, or None for unknown."""
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    parser: Any = _parser().parse_interactive(expression)
    position = 0
    try:
        for token in parser.lexer_thread.lex(parser.parser_state):
            position = _start(token)
            try:
                parser.feed_token(token)
            except UnexpectedToken:
                if "$END" not in parser.accepts():
                    raise
                break  # the expression is complete, and what follows is ignored
        return _condition(parser.feed_eof()).evaluate
    except Refusal as refusal:
        raise FilterError(refusal.reason, expression, refusal.position) from None
    except UnexpectedCharacters as unexpected:
        raise FilterError("this is no part of the language", expression, unexpected.pos_in_stream) from None
    except UnexpectedToken as unexpected:
        is_end = unexpected.token.type == "$END"
        reason = "the expression is not complete" if is_end else "this cannot stand here"
        raise FilterError(reason, expression, len(expression) if is_end else position) from None

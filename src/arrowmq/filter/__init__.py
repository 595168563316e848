"""Tag and SQL92 expressions: which messages a subscription wants.

In: an expression and its type, as a client's heartbeat or pull request names them.
Out: a filter that the store asks with a queue entry and then, if it needs, with a stored record; or a `FilterError`
that says what is wrong with the expression, and where.
Knows nothing of groups, requests or files.
"""

from __future__ import annotations

from collections import OrderedDict

from arrowmq.filter.errors import FilterError
from arrowmq.filter.sql_filter import SqlFilter
from arrowmq.filter.tags import TagFilter, split_tags

__all__ = ["SQL92", "TAG", "FilterError", "SqlFilter", "TagFilter", "compile", "is_tag_type", "split_tags"]

TAG = "TAG"
SQL92 = "SQL92"

Filter = TagFilter | SqlFilter

_CACHE_LIMIT = 1000
_cache: OrderedDict[tuple[bool, str], Filter | FilterError] = OrderedDict()


def is_tag_type(expression_type: str | None) -> bool:
    return expression_type in (None, "", TAG)


def compile(expression_type: str | None, expression: str | None) -> Filter:
    """The filter for an expression. Asked again it gives the same object (or the same error) without parsing again."""
    is_tag = is_tag_type(expression_type)
    if not is_tag and expression_type != SQL92:
        raise FilterError(f"the expression type {expression_type} is unknown: use TAG or SQL92", expression or "")
    key = (is_tag, expression or "")
    found = _cache.get(key)
    if found is None:
        try:
            found = TagFilter(key[1]) if is_tag else SqlFilter(key[1])
        except FilterError as refused:
            found = refused
        _cache[key] = found
        if len(_cache) > _CACHE_LIMIT:
            _cache.popitem(last=False)
    else:
        _cache.move_to_end(key)
    if isinstance(found, FilterError):
        raise FilterError(found.reason, found.expression, found.position)
    return found

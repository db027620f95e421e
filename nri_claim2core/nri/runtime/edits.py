"""Small edits of protobuf maps and repeated fields that the adjusting modules share.

A key or destination that starts with ``-`` is a removal marker. Messages of a repeated field
are copied before the field is rewritten, since deleting from it invalidates them.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from nri_claim2core.nri.runtime.owners import removed_key

# Repeated and map fields have one Python type per element type and no common protocol.
Field = Any


def put_entry(target: Field, key: str, value: Field) -> None:
    """Set one map entry to a text, to a copy of a message, or (None) to an empty value."""
    if isinstance(value, str) or (value is None and _holds_text(target)):
        target[key] = value or ""
    elif value is None:
        target[key].SetInParent()
    else:
        target[key].CopyFrom(value)


def split_removals(wishes: Field, attribute: str) -> tuple[dict[str, Field], list[Field]]:
    """Split wishes into removals by the key they remove, and additions in their order."""
    removals: dict[str, Field] = {}
    additions = []
    for wish in wishes:
        removed = removed_key(getattr(wish, attribute))
        if removed is None:
            additions.append(wish)
        else:
            removals[removed] = wish
    return removals, additions


def drop_items(items: Field, attribute: str, without: Container[str]) -> None:
    """Drop the items whose `attribute` is in `without`."""
    kept = [item for item in items if getattr(item, attribute) not in without]
    if len(kept) != len(items):
        replace_items(items, kept)


def replace_items(items: Field, values: list[Field]) -> None:
    """Give a repeated field new contents, which may be its own messages."""
    copies = [type(value).FromString(value.SerializeToString()) for value in values]
    del items[:]
    items.extend(copies)


def _holds_text(target: Field) -> bool:
    return not hasattr(target, "GetEntryClass") or (
        target.GetEntryClass().DESCRIPTOR.fields_by_name["value"].message_type is None
    )

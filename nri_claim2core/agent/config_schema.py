"""The options as a flat table, derived from the structs of `config`; and as JSON Schema.

A leaf of the configuration is an option, named by its path (`plugin.index`). Flat tables make
deep merging of layers a dictionary update, with lists replaced as a whole.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from nri_claim2core.agent.config import DEFAULTS, Applies, Config
from nri_claim2core.agent.config_values import ConfigValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One leaf of the configuration."""

    path: str
    "As in files: `plugin.handlerDeadline`."
    attributes: tuple[str, ...]
    "As in Python: ('plugin', 'handler_deadline')."
    type: Any
    "Annotated type that msgspec can convert to; of a list, the type of the whole."
    item_type: Any
    "Of a list: the type of an item; else None."
    default: object
    description: str
    applies: Applies
    expects: str
    "What a value (of a list: an item) has to be, to follow `expected`."
    is_late: bool
    "Whether the text that the runtime delivers after registration may set it."

    @property
    def is_list(self) -> bool:
        """Tell whether the value is a list."""
        return self.item_type is not None

    @property
    def list_bounds(self) -> tuple[int, int]:
        """The fewest and the most items of a list."""
        bounds = [m for m in get_args(self.type)[1:] if m.max_length is not None]
        return bounds[0].min_length or 0, bounds[0].max_length

    def value_of(self, config: Config) -> object:
        """Give the option's value in a configuration."""
        value: object = config
        for attribute in self.attributes:
            value = getattr(value, attribute)
        return value


def convert(kind: Any, value: object) -> object:  # noqa: ANN401
    """Give a plain text, truth value or number as an option's type, or a list item's.

    Raises: ValueError (msgspec.ValidationError is one).
    """
    base = get_args(kind)[0]
    if not _is_value_type(base):
        return msgspec.convert(value, kind)
    if not isinstance(value, str):
        raise ValueError(value)  # noqa: TRY004 - one family for "not what was expected"
    return cast("type[ConfigValue]", base).parse(value)


def to_builtins(value: object) -> Any:  # noqa: ANN401 - JSON-shaped by nature
    """Give one option's value as a plain text, truth value or list."""
    if isinstance(value, tuple):
        return [to_builtins(item) for item in value]
    return value if isinstance(value, bool) else str(getattr(value, "value", value))


def config_document(config: Config) -> dict[str, Any]:
    """Give a configuration as nested dictionaries in the form of a file, camelCase."""
    made: dict[str, Any] = {}
    for option in OPTIONS.values():
        *sections, leaf = option.path.split(".")
        below = made
        for section in sections:
            below = below.setdefault(section, {})
        below[leaf] = to_builtins(option.value_of(config))
    return made


def assemble(values: Mapping[str, object]) -> Config:
    """Make a configuration from option values; the rest are defaults."""
    return cast("Config", _assemble(Config, "", values))


def json_schema() -> dict[str, Any]:
    """Give the JSON Schema (draft 2020-12) of a configuration file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Claim2Core configuration",
        **_object_schema(Config, ""),
    }


def _sections_and_options(kind: type[Struct], path: str, attributes: tuple[str, ...]) -> None:
    sections: dict[str, str] = SECTIONS
    sections[path] = (kind.__doc__ or "").strip()
    default: object = DEFAULTS
    for attribute in attributes:
        default = getattr(default, attribute)
    for field in msgspec.structs.fields(kind):
        below = f"{path}.{field.encode_name}" if path else field.encode_name
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            _sections_and_options(field.type, below, (*attributes, field.name))
        else:
            OPTIONS[below] = _option(
                field.type, below, (*attributes, field.name), getattr(default, field.name)
            )


def _option(kind: Any, path: str, attributes: tuple[str, ...], default: object) -> Option:  # noqa: ANN401
    base, *metas = get_args(kind)
    about = next(m for m in metas if isinstance(m, Meta) and m.extra)
    extra = about.extra or {}
    item = get_args(base)[0] if get_origin(base) is tuple else None
    return Option(
        path=path,
        attributes=attributes,
        type=kind,
        item_type=item,
        default=default,
        description=about.description or "",
        applies=extra["applies"],
        expects=extra["expects"] or _expects(base),
        is_late=extra["late"],
    )


def _expects(kind: Any) -> str:  # noqa: ANN401
    if kind is bool:
        return "true or false"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        *head, last = (str(member.value) for member in kind)
        return f"{', '.join(head)} or {last}"
    return str(kind.EXPECTS)


def _assemble(kind: type[Struct], path: str, values: Mapping[str, object]) -> Struct:
    made: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        below = f"{path}.{field.encode_name}" if path else field.encode_name
        if below in SECTIONS:
            made[field.name] = _assemble(field.type, below, values)
        elif below in values:
            made[field.name] = values[below]
    return cast("Callable[..., Struct]", kind)(**made)


def _object_schema(kind: type[Struct], path: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        below = f"{path}.{field.encode_name}" if path else field.encode_name
        if below in SECTIONS:
            # A section whose options are all commented out is null in YAML, and allowed.
            properties[field.encode_name] = {
                **_object_schema(field.type, below),
                "type": ["object", "null"],
            }
        else:
            properties[field.encode_name] = _leaf_schema(OPTIONS[below])
    return {
        "description": SECTIONS[path],
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _leaf_schema(option: Option) -> dict[str, Any]:
    base = get_args(option.type)[0]
    if isinstance(base, type) and issubclass(base, enum.Enum):
        shape: dict[str, Any] = {"type": "string", "enum": [member.value for member in base]}
    elif _is_value_type(base):
        shape = dict(base.SCHEMA)
    else:
        shape = msgspec.json.schema(option.type)
    return {
        **shape,
        "description": f"{option.description} Takes effect {option.applies.value}.",
        "default": to_builtins(option.default),
    }


def _is_value_type(base: object) -> bool:
    return hasattr(base, "SCHEMA")


OPTIONS: Final[dict[str, Option]] = {}
"""Every option by path, in file order."""

SECTIONS: Final[dict[str, str]] = {}
"""Every mapping by path, the top as the empty path, with what it is about."""

_sections_and_options(Config, "", ())

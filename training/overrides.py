"""Settings of a recipe from the command line: `learning_rate=5e-4`, `network.stem=[[32, 5]]`."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from model.capsnet import NetworkConfig, family_of
from training.recipes import Recipe

_NETWORK = "network"


class SettingError(ValueError):
    """A setting is unknown or its value not allowed; the message says what is."""


def override(recipe: Recipe, settings: Sequence[str], *, fixed: Collection[str] = ()) -> Recipe:
    """A recipe with other values of some fields, its own or its network's.

    Args:
        settings: each `KEY=VALUE`. A field of the network is called `network.KEY`, or by its own
            name where the recipe has none of that name. Values are JSON or plain words; a list may
            also be written with commas alone.
        fixed: fields that something else decides.

    Raises:
        SettingError: a field is unknown or fixed, or a value is of the wrong kind or out of range.
    """
    own, networks = _kinds(recipe), _kinds(recipe.network)
    del own[_NETWORK]
    changes: dict[str, Any] = {}
    network_changes: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(f"{setting!r} is not KEY=VALUE")
        name = key.removeprefix(f"{_NETWORK}.")
        if name in fixed:
            raise SettingError(f"{key} follows from the pictures")
        if name == key and key in own:
            changes[key] = _value(key, text, own[key])
        elif name in networks:
            network_changes[name] = _value(key, text, networks[name])
        else:
            raise SettingError(
                f"{key} is no setting. The recipe has {', '.join(own)}; its "
                f"{family_of(recipe.network).name} network has {', '.join(networks)}"
            )
    try:
        network = replace(recipe.network, **network_changes)
        return replace(recipe, **changes, network=network)
    except ValueError as error:
        raise SettingError(str(error)) from error


def _kinds(settings: Recipe | NetworkConfig) -> dict[str, Any]:
    """The type of each field."""
    hints = get_type_hints(type(settings))
    return {field.name: hints[field.name] for field in fields(settings)}


def _value(key: str, text: str, kind: Any) -> Any:
    given = text if kind is str else _word(text)
    if get_origin(kind) is tuple and not isinstance(given, list):
        given = [_word(part) for part in text.split(",") if part]
    try:
        return _typed(given, kind)
    except (TypeError, ValueError) as error:
        raise SettingError(f"{key} is {_describe(kind)}, not {text}") from error


def _word(text: str) -> Any:
    """A number as such, anything else as it is."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _typed(given: Any, kind: Any) -> Any:
    """A JSON value as one of a kind; TypeError or ValueError where it is none."""
    if get_origin(kind) is Literal:
        allowed = given in get_args(kind)
    elif get_origin(kind) is tuple:
        each, *others = get_args(kind)
        if not isinstance(given, list) or (others != [...] and len(given) != 1 + len(others)):
            raise ValueError
        return tuple(_typed(one, each) for one in given)
    elif hasattr(kind, "_fields"):  # a named tuple, of whole numbers as all of them here
        return kind(*(_typed(one, int) for one in given))
    elif kind is float:
        given = float(given) if type(given) is int else given
        allowed = type(given) is float and math.isfinite(given)
    else:
        allowed = type(given) is kind
    if not allowed:
        raise ValueError
    return given


def _describe(kind: Any) -> str:
    """What is allowed."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        each, *others = get_args(kind)
        count = "some" if others == [...] else str(1 + len(others))
        return f"a list of {count}, each {_describe(each)}"
    if hasattr(kind, "_fields"):
        return f"[{', '.join(kind._fields)}]"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]

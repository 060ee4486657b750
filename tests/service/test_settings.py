from __future__ import annotations

from collections.abc import Callable

import pytest

from service.settings import Settings, SettingsError

Read = Callable[..., Settings]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """`read(CAPSNET_THREADS="2")` gives the settings of that environment."""
    for field in Settings.model_fields:
        monkeypatch.delenv(f"CAPSNET_{field.upper()}", raising=False)

    def read_with(**variables: str) -> Settings:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return Settings.from_environment()

    return read_with


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("CAPSNET_THREDS", "2", r"CAPSNET_THREDS \(did you mean CAPSNET_THREADS\?\)"),
        ("CAPSNET_MODELS", "mnist", "CAPSNET_MODELS: a JSON list is needed"),
        ("CAPSNET_PORT", "70000", "CAPSNET_PORT: Input should be less than or equal to 65535"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_be_right(
    variable: str, value: str, message: str, read: Read
) -> None:
    """The message says how to mend it, and a misspelt name is refused."""
    with pytest.raises(SettingsError, match=message):
        read(**{variable: value})


def test_a_body_that_could_never_be_taken_is_refused_at_start() -> None:
    """A body larger than all that may be held would always be answered with 429."""
    with pytest.raises(ValueError, match="half of max_waiting_bytes"):
        Settings(max_body_bytes=20, max_waiting_bytes=10)


@pytest.mark.parametrize("value", ['["a secret key", 1]', '["a secret key"', '"a secret key"'])
def test_a_malformed_list_of_keys_is_refused_unseen(value: str, read: Read) -> None:
    """The message names the variable and does not repeat what it holds."""
    with pytest.raises(SettingsError, match="CAPSNET_API_KEYS") as refusal:
        read(CAPSNET_API_KEYS=value)
    assert "secret" not in str(refusal.value)


def test_keys_are_not_shown(read: Read) -> None:
    """Settings may be printed; keys may not."""
    assert "secret" not in repr(read(CAPSNET_API_KEYS='["a secret key of some length"]'))

"""The settings of the service, read once from the environment.

What each does is in docs/reference/settings.md, and a test compares.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

import model
from model import Device

if TYPE_CHECKING:
    from model.runtime.cuda import CudaOptions

_PREFIX = "CAPSNET_"
_FOREIGN = frozenset({"CAPSNET_CLIENT_KEY", "CAPSNET_DATA_DIR", "CAPSNET_URL"})
"""Variables of the same prefix that belong to training and the client."""


class SettingsError(Exception):
    """A setting is unknown or out of range."""

    @classmethod
    def lacking(cls, setting: str, extra: str) -> Self:
        """Make the error of a setting whose packages are not installed.

        Its message names the command.
        """
        command = f'python -m pip install --constraint constraints.txt --editable ".[{extra}]"'
        return cls(f"{setting} needs the extra {extra}: in the repository's folder, run {command}")


class Settings(BaseSettings):
    """Each field is the environment variable of the same name in capitals, after `CAPSNET_`."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, allow_inf_nan=False)

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8000, ge=1, le=65535)
    grpc_port: int = Field(default=0, ge=0, le=65535)
    workers: int = Field(default=0, ge=0)
    device: Device = "auto"
    threads: int = Field(default=0, ge=0)
    cuda_tf32: bool = False
    bundles: Path = Path(model.__file__).parent / "bundles"
    models: tuple[str, ...] = ()
    default_model: str = "mnist"
    max_body_bytes: int = Field(default=20_000_000, ge=1)
    max_pixels: int = Field(default=25_000_000, ge=1)
    max_pictures: int = Field(default=256, ge=1)
    max_batch_rows: int = Field(default=32, ge=1)
    max_waiting_rows: int = Field(default=1024, ge=1)
    max_waiting_bytes: int = Field(default=500_000_000, ge=1)
    rate_limit_per_key: float = Field(default=0, ge=0)
    rate_burst_per_key: int = Field(default=256, ge=1)
    upload_timeout_s: float = Field(default=60, gt=0)
    request_timeout_s: float = Field(default=30, gt=0)
    inference_timeout_s: float = Field(default=60, gt=0)
    heartbeat_timeout_s: float = Field(default=10, ge=2)
    drain_grace_s: float = Field(default=2, ge=0)
    drain_timeout_s: int = Field(default=30, ge=1)
    api_keys: tuple[SecretStr, ...] = ()
    api_keys_file: Path | None = None
    admin_keys: tuple[SecretStr, ...] = ()
    admin_keys_file: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    log_format: Literal["text", "json"] = "text"

    @field_validator("api_keys_file", "admin_keys_file", mode="before")
    @classmethod
    def _no_file(cls, value: object) -> object:
        """Treat an empty variable as unset. As a path it would be this folder."""
        return value or None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if 2 * self.max_body_bytes > self.max_waiting_bytes:
            raise ValueError("max_body_bytes may not exceed half of max_waiting_bytes")
        return self

    @property
    def cuda(self) -> CudaOptions:
        """The settings of CUDA alone."""
        from model.runtime.cuda import CudaOptions  # noqa: PLC0415  a start would wait

        return CudaOptions(tf32=self.cuda_tf32)

    @classmethod
    def from_environment(cls) -> Self:
        """Read the settings.

        Raises:
            SettingsError: an unknown `CAPSNET_` variable, or a value out of range.
        """
        known = {f"{_PREFIX}{name.upper()}" for name in cls.model_fields} | _FOREIGN
        if unknown := sorted({name for name in os.environ if name.startswith(_PREFIX)} - known):
            raise SettingsError(f"unknown settings: {', '.join(map(_suggest, unknown))}")
        try:
            return cls()
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            raise SettingsError("; ".join(_describe(fault) for fault in faults)) from None
        except ValueError as error:
            raise SettingsError(_describe_no_list(error)) from None


def _suggest(unknown: str) -> str:
    """Name a variable that does not exist, and one that is spelt alike."""
    known = [f"{_PREFIX}{name.upper()}" for name in Settings.model_fields]
    near = get_close_matches(unknown, known, 1, cutoff=0.8)
    return unknown + "".join(f" (did you mean {one}?)" for one in near)


def _describe(fault: ErrorDetails) -> str:
    """Describe what is wrong with which variable. The value is left out: it may be a key."""
    names = [f"{_PREFIX}{str(name).upper()}: " for name in fault["loc"][:1]]
    return "".join([*names, fault["msg"]])


def _describe_no_list(error: ValueError) -> str:
    """Describe what pydantic-settings raises for a variable that is not JSON."""
    named = re.search(r'field "(\w+)"', str(error))
    name = f"{_PREFIX}{named[1].upper()}: " if named else ""
    return f'{name}a JSON list is needed, such as ["one", "another"]'

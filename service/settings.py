"""Every setting of the service, read once from the environment."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

import model
from model.runtime import Device
from model.runtime.cuda import ArenaGrowth, ConvSearch, CudaOptions, Precision
from service.logs import LogFormat

_PREFIX = "CAPSNET_"
_FOREIGN = frozenset({"CAPSNET_DATA_DIR"})
"""Variables of the same prefix that belong to training."""

_CUDA_OPTIONS = tuple(option.name for option in fields(CudaOptions))


class SettingsError(Exception):
    """A setting is unknown or out of range."""


class Settings(BaseSettings):
    """Each field is the environment variable of the same name in capitals, after `CAPSNET_`."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True, allow_inf_nan=False)

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8000, ge=1, le=65535, description="TCP port to listen on.")
    device: Device = Field("auto", description="`cuda` refuses to fall back to the CPU.")
    threads: int = Field(
        0, ge=0, description="CPU threads of inference, in all; 0 takes the container's CPU quota."
    )
    cuda_device_id: int = Field(0, ge=0, description="Which CUDA device.")
    cuda_precision: Precision = Field(
        "float32", description="`half`: the encoder's convolutions and votes in float16."
    )
    cuda_tf32: bool = Field(False, description="Round factors of float32 products to TF32.")
    cuda_graphs: bool = Field(True, description="Capture each batch size as a CUDA graph.")
    cuda_conv_search: ConvSearch = Field(
        "heuristic", description="How cuDNN chooses its convolution for each batch size."
    )
    cuda_arena_growth: ArenaGrowth = Field(
        "as-requested", description="By how much onnxruntime's memory arenas grow."
    )
    cuda_memory_limit_bytes: int = Field(
        0, ge=0, description="Of each graph's memory arena; 0 sets no limit."
    )
    bundles: Path = Field(
        Path(model.__file__).parent / "bundles", description="Folder with a folder per bundle."
    )
    models: tuple[str, ...] = Field((), description="JSON list of bundles to load; empty: all.")
    default_model: str = Field("mnist", description="Bundle of requests that name none.")
    max_body_bytes: int = Field(20_000_000, ge=1, description="Largest request body.")
    max_pixels: int = Field(50_000_000, ge=1, description="Largest picture, width x height.")
    max_pictures: int = Field(256, ge=1, description="Most pictures in one request.")
    max_batch_rows: int = Field(32, ge=1, description="Most images in one inference.")
    max_delay_ms: float = Field(
        0, ge=0, description="How long the first image of a batch waits for others to join it."
    )
    max_waiting_rows: int = Field(
        1024,
        ge=1,
        description="While so many images and poses wait for inference, pictures that are being "
        "decoded among them, requests are refused with 429; those that were let in are finished.",
    )
    max_waiting_bytes: int = Field(
        500_000_000, ge=1, description="Request bodies held at once; more are refused with 429."
    )
    request_timeout_s: float = Field(
        30, gt=0, description="After this an answer is too late (504)."
    )
    drain_grace_s: float = Field(
        2, ge=0, description="Between SIGTERM and the closing of the listener."
    )
    drain_timeout_s: int = Field(
        30, ge=1, description="Longest time to finish accepted requests after the grace."
    )
    api_keys: tuple[SecretStr, ...] = Field(
        (), description="JSON list of API keys; empty, and no file of them: no key is asked for."
    )
    api_keys_file: Path | None = Field(
        None, description="File of further API keys, one a line; `#` begins a comment."
    )
    cors_origins: tuple[str, ...] = Field(
        (), description="JSON list of origins whose pages may ask; `*` is any."
    )
    log_format: LogFormat = Field(
        "text", description="`json` writes an object a line, with the request's id."
    )
    otel: bool = Field(False, description="Send traces; needs the extra `otel`.")
    decode_threads: int = Field(2, ge=1, description="Threads that decode pictures.")

    @field_validator("api_keys_file", mode="before")
    @classmethod
    def _no_file(cls, value: object) -> object:
        """An empty variable names none; it would be this folder."""
        return value or None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.max_body_bytes > self.max_waiting_bytes:
            raise ValueError("max_body_bytes may not exceed max_waiting_bytes: it would never fit")
        return self

    @property
    def cuda(self) -> CudaOptions:
        """The settings of CUDA alone."""
        return CudaOptions(**{name: getattr(self, f"cuda_{name}") for name in _CUDA_OPTIONS})

    @classmethod
    def from_environment(cls) -> Self:
        """Read the settings, and `HOST` and `PORT` without prefix as a convenience.

        Raises:
            SettingsError: an unknown `CAPSNET_` variable, or a value out of range.
        """
        known = {f"{_PREFIX}{name.upper()}" for name in cls.model_fields} | _FOREIGN
        unknown = sorted(
            name for name in os.environ if name.startswith(_PREFIX) and name not in known
        )
        if unknown:
            raise SettingsError(f"unknown settings: {', '.join(unknown)}")
        short = {
            name.lower(): os.environ[name]
            for name in ("HOST", "PORT")
            if name in os.environ and f"{_PREFIX}{name}" not in os.environ
        }
        try:
            return cls(**short)  # type: ignore[arg-type]
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            raise SettingsError("; ".join(_describe(fault) for fault in faults)) from None
        except ValueError as error:
            raise SettingsError(_describe_no_list(error)) from None


def _describe(fault: ErrorDetails) -> str:
    """What is wrong with which variable, but not its value: that may be a key."""
    names = [f"{_PREFIX}{str(name).upper()}: " for name in fault["loc"][:1]]
    return "".join([*names, fault["msg"]])


def _describe_no_list(error: ValueError) -> str:
    """What pydantic-settings raises of a variable that is not JSON, in words for people."""
    named = re.search(r'field "(\w+)"', str(error))
    name = f"{_PREFIX}{named[1].upper()}: " if named else ""
    return f'{name}a JSON list is needed, such as ["one", "another"]'

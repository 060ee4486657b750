"""Which bundles are served: found, verified and loaded at start."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from model.bundle import MANIFEST, Bundle, BundleError
from model.runtime import Runtime
from service.settings import Settings

log = logging.getLogger(__name__)


class NothingToServe(Exception):
    """No bundle could be loaded, or not the default one."""


def _log_refusal(reason: str) -> None:
    log.error("bundle refused: %s", reason)


def load_runtimes(
    settings: Settings, *, on_refusal: Callable[[str], None] = _log_refusal
) -> dict[str, Runtime]:
    """Load the bundles that the settings name. A broken one is left out.

    Args:
        settings: where bundles are, which of them to load and on what.
        on_refusal: told which bundle is left out, and why.

    Raises:
        NothingToServe: the default bundle is not among the loaded ones.
        model.runtime.DeviceError: the device that was asked for does not work.
    """
    runtimes: dict[str, Runtime] = {}
    for path in _folders(settings):
        try:
            bundle = Bundle.open(path)
            runtime = Runtime(
                bundle,
                device=settings.device,
                threads=settings.threads,
                cuda=settings.cuda,
                max_encode_rows=settings.max_batch_rows,
            )
        except BundleError as error:
            on_refusal(str(error))
            continue
        if bundle.manifest.name in runtimes:
            on_refusal(f"{path}: its name is that of {runtimes[bundle.manifest.name].bundle.path}")
            continue
        runtimes[bundle.manifest.name] = runtime
    if not settings.bundles.is_dir():
        raise NothingToServe(f"there is no folder of bundles {settings.bundles}")
    if settings.default_model not in runtimes:
        raise NothingToServe(
            f"the default model {settings.default_model!r} is not among the loaded bundles "
            f"({', '.join(sorted(runtimes)) or 'none'}) of {settings.bundles}"
        )
    return runtimes


def _folders(settings: Settings) -> list[Path]:
    if settings.models:
        return [settings.bundles / name for name in settings.models]
    return sorted(manifest.parent for manifest in settings.bundles.glob(f"*/{MANIFEST}"))

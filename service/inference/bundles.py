"""Find and load the bundles that the settings name."""

from __future__ import annotations

import ctypes
import gc
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from model.bundle import MANIFEST, Bundle, BundleError
from model.runtime import Runtime
from model.runtime.cpu import cpu_quota
from service.errors import BundleRefused
from service.settings import Settings

log = logging.getLogger(__name__)


def find_bundles(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the folders of the named bundles, which may be missing; without names, of all bundles.

    Hidden folders are left out of the latter.
    """
    named = [folder / name for name in names]
    return named or sorted(path.parent for path in folder.glob(f"[!.]*/{MANIFEST}"))


def load_runtimes(
    settings: Settings, *, strict: bool = False, workers: int = 1, folder: Path | None = None
) -> dict[str, Runtime]:
    """Load the bundles that the settings name. A broken one is left out, and so are hidden folders.

    Args:
        settings: which bundles, and how.
        strict: whether a broken bundle is an error.
        workers: among which the threads are divided.
        folder: where a copy of the folder of the settings is. Errors name the original.

    Raises:
        BundleRefused: nothing is loaded, or the default bundle is not, or one is broken, if
            `strict`. If the settings name no default and there is no bundle `mnist`, the first
            bundle by name is the default.
        model.runtime.DeviceError: the device that was asked for does not work.
    """
    folder = folder or settings.bundles

    def refuse(reason: str) -> None:
        reason = reason.replace(str(folder), str(settings.bundles))
        if strict:
            raise BundleRefused(reason)
        log.error("bundle skipped: %s", reason)

    bundles: list[Bundle] = []
    paths = find_bundles(folder, settings.models)
    for path in paths:
        try:
            bundles.append(Bundle.open(path))
        except BundleError as error:
            refuse(str(error))
    runtimes: dict[str, Runtime] = {}
    threads = settings.threads or cpu_quota()
    for bundle in sorted(bundles, key=_has_other_name):
        name = bundle.manifest.name
        if name in runtimes:
            refuse(f"{bundle.path}: its name is already taken by {runtimes[name].bundle.path}")
            continue
        try:
            runtimes[name] = Runtime(
                bundle,
                device=settings.device,
                threads=max(1, threads // workers),
                lone_threads=threads,
                cuda=settings.cuda,
                max_encode_rows=settings.max_batch_rows,
            )
        except BundleError as error:
            refuse(str(error))
    if not settings.bundles.is_dir():
        raise BundleRefused(f"there is no folder of bundles {settings.bundles}")
    if settings.default_model not in runtimes:
        is_broken = settings.default_model in {path.name for path in paths}
        _replace_default(settings, runtimes, is_broken=is_broken)
    return runtimes


def _replace_default(settings: Settings, names: Collection[str], *, is_broken: bool) -> None:
    """Log which bundle is the default instead of one that is not loaded, or refuse to serve."""
    if is_broken or not names or "default_model" in settings.model_fields_set:
        known = ", ".join(sorted(names))
        raise BundleRefused(
            f"the default model {settings.default_model!r} is not among the loaded bundles "
            f"({known or 'none'}) of {settings.bundles}"
            + f": set CAPSNET_DEFAULT_MODEL to one of {known}"
            * bool(known)
        )
    log.info("the default model is %r; CAPSNET_DEFAULT_MODEL sets another", min(names))


def _has_other_name(bundle: Bundle) -> bool:
    """Whether a bundle's name is not its folder's. Such a bundle takes no other bundle's name."""
    return bundle.manifest.name != bundle.path.name


def trim_memory() -> None:
    """Return freed memory to the system, and exempt what stays from garbage collection.

    With hundreds of requests in flight it would go through all of it again and again.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 50, 100)
    with suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)

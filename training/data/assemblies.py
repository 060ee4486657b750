"""Assemblies: rendered objects of the same four parts, which differ only in how these are joined.

A slab, a post, a ball and a ring are joined in five ways, the classes. The sizes of the parts and
the exact joints differ from instance to instance. An object stands on a turntable, as the toys of
smallNORB do (LeCun, Huang and Bottou, 2004): 18 azimuths, 9 elevations of the camera and 6 lamps,
seen without perspective. Its size differs from view to view. Everything follows from a seed, so the
factors of every image are known (`list_factors`).

Images are light on black. They are rendered by sphere tracing of signed distances (Hart 1996),
four rays for each pixel, shaded by Lambert's law, without shadows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from rich.progress import track

from model.bundle.disk import replacing
from model.measures import Measure
from training.data.source import Columns, DatasetError, DataSplit

Vectors = NDArray[np.float32]
CLASSES = ("lamp", "stand", "table", "dock", "hanger")
AZIMUTHS = range(0, 360, 20)
ELEVATIONS = range(30, 75, 5)
LAMPS = (
    (0, 60, 0.25),
    (90, 45, 0.25),
    (200, 45, 0.3),
    (300, 35, 0.2),
    (45, 80, 0.35),
    (140, 25, 0.2),
)
"""Each lamp's azimuth from the camera's and its elevation, in degrees, and the ambient light."""
INSTANCES: dict[DataSplit, range] = {"train": range(6), "test": range(6, 11)}
"""The instances of each class. The last training instance is held out for validation."""
VIEWS = len(AZIMUTHS) * len(ELEVATIONS) * len(LAMPS)
"""The images of an instance."""
SIZES = (0.8, 1.2)
"""The least and the largest size of an object, as a factor."""
KNOWN = (
    *(Measure("azimuth-sine", ""), Measure("azimuth-cosine", ""), Measure("elevation", "degrees")),
    *(Measure("size", ""), Measure("light-right", ""), Measure("light-above", "")),
)
"""What is known of an image; an azimuth is its sine and cosine."""
VERSION = 1
"""Rendered files are named after it: a change of what is rendered needs another number."""
_SEED = 2004
_EXTENT, _REACH = 1.05, 0.9
_STEPS, _TOUCH, _PROBE = 48, 2e-3, 1e-3
_OVERSAMPLING = 2


class Factors(NamedTuple):
    """The known factors of N images, (N,) each, in the order of the data set."""

    label: NDArray[np.int64]
    instance: NDArray[np.int64]
    azimuth: NDArray[np.int64]
    """In degrees: how far the turntable is turned."""
    elevation: NDArray[np.int64]
    """In degrees: how far the camera looks down."""
    lamp: NDArray[np.int64]
    size: NDArray[np.float64]

    def values(self) -> NDArray[np.float64]:
        """What is known of the objects, (N, F) of KNOWN."""
        turn = np.radians(self.azimuth)
        across, up = np.radians(np.array(LAMPS)[self.lamp, :2]).T
        light = (np.sin(across) * np.cos(up), np.sin(up))
        return np.stack((np.sin(turn), np.cos(turn), self.elevation, self.size, *light), axis=1)


class Assembly(NamedTuple):
    """The parts of one instance: their sizes, and the places (x, y, z) of their middles.

    y is up.
    """

    slab: Vectors
    """Half of its width, height and depth."""
    post: Vectors
    """Its radius and half of its height."""
    ball: float
    """Its radius."""
    ring: Vectors
    """Its radius and that of its tube."""
    places: Vectors
    """(4, 3): of slab, post, ball and ring."""

    def distance(self, points: Vectors) -> Vectors:
        """Return the signed distances (N,) of points (N, 3) to the union of the parts."""
        outside = np.abs(points - self.places[0]) - self.slab
        slab = np.sqrt((np.maximum(outside, 0) ** 2).sum(axis=1))
        slab += np.minimum(outside.max(axis=1), 0)
        x, y, z = (points - self.places[1]).T
        across, along = np.hypot(x, z) - self.post[0], np.abs(y) - self.post[1]
        post = np.hypot(np.maximum(across, 0), np.maximum(along, 0))
        post += np.minimum(np.maximum(across, along), 0)
        ball = np.sqrt(((points - self.places[2]) ** 2).sum(axis=1)) - self.ball
        x, y, z = (points - self.places[3]).T
        ring = np.hypot(np.hypot(x, z) - self.ring[0], y) - self.ring[1]
        nearest: Vectors = np.minimum(np.minimum(slab, post), np.minimum(ball, ring))
        return nearest


@dataclass(frozen=True, kw_only=True)
class RenderedSource:
    """A source of images that are rendered where they are not there yet.

    Args:
        size_px: height and width.
    """

    size_px: int

    def columns(self, split: DataSplit, directory: Path, *, fetch: bool) -> Columns:
        """Read a split from `directory`; render it first if it is not there.

        Raises:
            DatasetError: it is not there and `fetch` is False, or its file cannot be read.
        """
        path = directory / f"{split}-{VERSION}.npz"
        if not path.exists():
            if not fetch:
                raise DatasetError(f"{path} is missing")
            directory.mkdir(parents=True, exist_ok=True)
            with FileLock(path.with_suffix(".lock")):
                if not path.exists():
                    images = render_split(split, self.size_px)
                    with replacing(path) as file:
                        np.savez_compressed(file, images=images)
        factors = list_factors(split)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                images = arrays["images"]
        except (OSError, KeyError, ValueError) as error:
            raise DatasetError(f"{path} cannot be read; move it away to render it anew") from error
        if images.shape != (len(factors.label), 1, self.size_px, self.size_px):
            raise DatasetError(f"{path} holds {images.shape}; move it away to render it anew")
        objects = np.arange(len(images)) // VIEWS
        return {
            "images": images,
            "labels": factors.label,
            "objects": objects,
            "values": factors.values(),
        }


def render_split(split: DataSplit, size_px: int) -> NDArray[np.uint8]:
    """Render all images (N, 1, H, W) of a split, and show the progress."""
    views = list(_views(split))
    parts = [
        render_lamps(assemble(label, instance), view, size_px=size_px)
        for label, instance, view in track(views, f"rendering {split} images", transient=True)
    ]
    return np.concatenate(parts)[:, None]


class View(NamedTuple):
    """A camera's view of an object, in degrees, and the object's size as a factor."""

    azimuth: int
    elevation: int
    size: float


def list_factors(split: DataSplit) -> Factors:
    """List the factors of every image of a split.

    The order is by instance, class, azimuth, elevation and lamp, the last one changing first.
    """
    views = list(_views(split))
    table = np.array([(label, instance, *view) for label, instance, view in views])
    repeated = table.repeat(len(LAMPS), axis=0)
    label, instance, azimuth, elevation = repeated[:, :4].astype(np.int64).T
    lamp = np.tile(np.arange(len(LAMPS)), len(views))
    return Factors(label, instance, azimuth, elevation, lamp, repeated[:, 4])


def assemble(label: int, instance: int) -> Assembly:
    """Build an instance of a class."""
    numbers = _uniform(label, instance)

    def between(*ranges: tuple[float, float]) -> Vectors:
        return np.array([low + (high - low) * next(numbers) for low, high in ranges], np.float32)

    slab = between((0.36, 0.5), (0.07, 0.1), (0.27, 0.38))
    post = between((0.07, 0.11), (0.3, 0.42))
    ball = float(between((0.15, 0.22))[0])
    ring = between((0.2, 0.28), (0.05, 0.07))
    places = _join(label, slab, post, (ball, float(ring[1])))
    places += 0.03 * np.array([[2 * next(numbers) - 1 for _ in range(3)] for _ in range(4)])
    heights = np.array((slab[1], post[1], ball, ring[1]))
    places[:, 1] -= ((places[:, 1] - heights).min() + (places[:, 1] + heights).max()) / 2
    return Assembly(slab, post, ball, ring, places.astype(np.float32))


def _join(
    label: int, slab: Vectors, post: Vectors, radii: tuple[float, float]
) -> NDArray[np.float64]:
    """The places (4, 3) of slab, post, ball and ring, the slab's at the origin.

    Args:
        radii: of the ball and of the ring's tube.
    """
    (ball, tube), (side, back) = radii, (0.55 * float(slab[0]), 0.4 * float(slab[2]))
    top = float(slab[1])
    on_slab, end = top + float(post[1]), top + 2 * float(post[1])
    lies, ring = top + 0.9 * ball, top + tube
    joints = (
        # The ring lies at the foot of the post, the ball on its top.
        ((0, on_slab, 0), (0, end + 0.8 * ball, 0), (0, ring, 0)),
        # The ball lies next to the post, the ring on its top.
        ((0, on_slab, 0), (side, lies, 0), (0, end, 0)),
        # The slab lies on the post, the ring is its foot.
        ((0, -on_slab, 0), (side, lies, 0), (0, -end, 0)),
        # Post and ball stand at two corners of one long side, the ring is below.
        ((side, on_slab, back), (-side, lies, back), (0, -ring, 0)),
        # The same, upside down.
        ((side, -on_slab, back), (-side, -lies, back), (0, ring, 0)),
    )
    return np.array(((0, 0, 0), *joints[label]), np.float64)


def render_lamps(assembly: Assembly, view: View, *, size_px: int) -> NDArray[np.uint8]:
    """Render a view by each of the lamps, (6, H, W)."""
    fine = size_px * _OVERSAMPLING
    hit, normals = _trace(assembly, view, fine)
    images = np.zeros((len(LAMPS), fine * fine), np.float32)
    for image, (azimuth, elevation, ambient) in zip(images, LAMPS, strict=True):
        lamp = _direction(view.azimuth + azimuth, elevation)
        image[hit] = ambient + (1 - ambient) * np.maximum(normals @ lamp, 0)
    cells = images.reshape(len(LAMPS), size_px, _OVERSAMPLING, size_px, _OVERSAMPLING)
    pixels: NDArray[np.uint8] = np.rint(255 * cells.mean(axis=(2, 4)).clip(0, 1)).astype(np.uint8)
    return pixels


def _trace(assembly: Assembly, view: View, fine: int) -> tuple[NDArray[np.int64], Vectors]:
    """Follow fine x fine parallel rays; return which of them hit, and the normals there."""
    to_camera = _direction(view.azimuth, view.elevation)
    right = _direction(view.azimuth + 90, 0)
    up = np.cross(to_camera, right)
    places = ((np.arange(fine) + 0.5) / fine * 2 - 1) * (_EXTENT / view.size)
    across, down = np.meshgrid(places, -places)
    starts = across.reshape(-1, 1) * right + down.reshape(-1, 1) * up
    room = _REACH**2 - (starts**2).sum(axis=1)  # rays outside a sphere around the object miss it
    alive = np.flatnonzero(room > 0)
    points = (starts[alive] + np.sqrt(room[alive])[:, None] * to_camera).astype(np.float32)
    depth = 2 * np.sqrt(room[alive]).astype(np.float32)
    gone = np.zeros_like(depth)
    hits, where = [], []
    for _ in range(_STEPS):
        gap = assembly.distance(points)
        touching = gap < _TOUCH
        hits.append(alive[touching])
        where.append(points[touching])
        gone = gone + gap
        going = ~touching & (gone < depth)
        alive, depth, gone = alive[going], depth[going], gone[going]
        points = points[going] - gap[going, None] * to_camera
        if not len(alive):
            break
    surface = np.concatenate(where)
    normals = np.stack(
        [
            assembly.distance(surface + _PROBE * axis) - assembly.distance(surface - _PROBE * axis)
            for axis in np.eye(3, dtype=np.float32)
        ],
        axis=1,
    )
    normals /= np.linalg.norm(normals, axis=1, keepdims=True) + 1e-9
    return np.concatenate(hits), normals


def _direction(azimuth: float, elevation: float) -> Vectors:
    """The unit vector from the object towards an azimuth and elevation in degrees."""
    a, e = np.radians(azimuth), np.radians(elevation)
    return np.array((np.cos(e) * np.sin(a), np.sin(e), np.cos(e) * np.cos(a)), np.float32)


def _views(split: DataSplit) -> Iterator[tuple[int, int, View]]:
    """Class, instance and view of every render of a split, in order."""
    for instance in INSTANCES[split]:
        for label in range(len(CLASSES)):
            sizes = _uniform(label, instance, 1)
            for azimuth in AZIMUTHS:
                for elevation in ELEVATIONS:
                    size = SIZES[0] + (SIZES[1] - SIZES[0]) * next(sizes)
                    yield label, instance, View(azimuth, elevation, size)


def _uniform(*key: int) -> Iterator[float]:
    """An endless stream of numbers in [0, 1), outputs of PCG64, which stay the same for good."""
    generator = np.random.PCG64((_SEED, *key))
    while True:
        yield int(generator.random_raw()) / 2**64

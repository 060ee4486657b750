"""The bundle: a folder with a trained network's graphs, weights, manifest and model card.

encoder.onnx        images float32 (N, C, H, W)  ->  presence (N, K), poses (N, K, D)
encoder.batch.onnx  the same, faster for several images on a CPU (where that pays)
encoder.any-size.onnx  the same for larger images too (shared-weight capsules)
decoder.onnx        poses float32 (M, D), classes int64 (M,)  ->  images float32 (M, C, H, W)
routing.onnx        images  ->  the arrays of `model.outputs.Trace`, in the order of its `named`
weights.safetensors the weights of all of them, stored once, large ones in 16 bits
novelty.npz         the poses of training images, to measure distances from (if it has poses)
neighbours.npz      poses and thumbnails of training images, to find the nearest (if it has some)
manifest.json       what is in the folder: see `Manifest`
CARD.md             the model card, next to the figures that it shows
samples/            pictures to try the network on (or none): see `model.bundle.samples`
"""

from model.bundle.files import (
    CARD,
    MANIFEST,
    WEIGHTS,
    Bundle,
    BundleError,
    digest,
    write_manifest,
)
from model.bundle.manifest import NAME, Layer, Manifest, PreprocessRule
from model.bundle.poses import NEIGHBOURS, NOVELTY

__all__ = [
    "CARD",
    "MANIFEST",
    "NAME",
    "NEIGHBOURS",
    "NOVELTY",
    "WEIGHTS",
    "Bundle",
    "BundleError",
    "Layer",
    "Manifest",
    "PreprocessRule",
    "digest",
    "write_manifest",
]

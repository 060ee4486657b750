"""The recipes that rows share: written out, so that a change of a preset changes no result."""

from __future__ import annotations

from typing import Any

from model.capsnet.attention import AttentionConfig
from model.capsnet.baseline import BaselineConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Conv
from research.rows import plain
from training.recipes import Recipe

_SMALL: dict[str, Any] = {"batch_size": 64, "warmup_steps": 300}
_AVERAGED: dict[str, Any] = {**_SMALL, "average_decay": 0.999}
STRIDED = DynamicConfig(stem=(Conv(64, 9, 2),), primary_types=8, primary_kernel=5, primary_stride=1)
DIGITS = Recipe("", network=STRIDED, **_SMALL)
ATTENTION = Recipe(
    "", network=AttentionConfig(), learning_rate=2e-3, convolutions="bfloat16", **_AVERAGED
)
SHARED = Recipe(
    "",
    network=SharedConfig(decoder_hidden=(256, 512)),
    absent_weight=0.25,
    convolutions="bfloat16",
    **_AVERAGED,
)
MATRIX = Recipe(
    "",
    network=MatrixConfig(
        stem=(Conv(32, 5), Conv(64, 3, 2)),
        primary_types=4,
        conv_caps=(8, 8),
        decoder_hidden=(256, 512),
    ),
    loss="spread",
    spread_steps=400,
    detach_poses=True,
    learning_rate=3e-3,
    shift_px=1,
    **_AVERAGED,
)
CNN = plain(DIGITS, BaselineConfig(convs=(8, 8, 8)))
"""As many multiplications as STRIDED: 8, 8 and 8 channels, no normalisation, and 97 % of the
parameters in one layer."""

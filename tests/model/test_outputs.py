from __future__ import annotations

import numpy as np

from model.bundle import Layer
from model.outputs import ClassTrace, LayerTrace, Trace

LAYERS = [Layer(name, 3, 2, 4, 4, field_px=5, stride_px=1) for name in ("first", "classes")]


def test_a_trace_is_put_together_from_its_arrays() -> None:
    """In the order of the graph's outputs, those of hidden layers last, by the layer's name."""
    arrays = [np.full(1, number) for number in range(8)]
    trace = Trace.of(arrays, LAYERS)
    expected = [*ClassTrace._fields, *(f"first.{field}" for field in LayerTrace._fields)]
    assert expected == list(trace.named())
    assert arrays == list(trace.named().values())
    assert trace.hidden["first"].presence is arrays[-1]

"""Import a network that was trained elsewhere: an ONNX file or a module of PyTorch, as a bundle.

The encoder maps `images` (N, C, H, W), float32 in [0, 1], to the `presence` (N, K) of the classes,
or to their `logits`. With a decoder, its second output is their `poses` (N, K, D). The decoder maps
`poses` (M, D) of `classes` (M,), int64, to `images` (M, C, H, W). A bundle of these two has every
view except for those of routing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import onnx
import torch
import typer
from google.protobuf.message import DecodeError
from onnx import TensorProto, external_data_helper, helper
from torch import Tensor, nn

from model.bundle import WEIGHTS, Bundle, Manifest
from model.bundle.manifest import GraphRole
from model.outputs import Encoding
from model.preprocess import Floats
from model.runtime import Runtime
from model.runtime.cpu import open_session
from training.analysis.bundle import analyse_imported
from training.command import Replace, SkipUnreadable, app, console, run_file
from training.data.pictures import find_pictures
from training.device import open_runtime
from training.evaluate import score_folder
from training.export import replacing_folder, seal
from training.graphs import ExportError, refuse_difference, to_onnx
from training.provenance import refuse_other

_OLDEST_OPSET = 13
"""From this operator set on, `Softmax` is of one axis."""
_UNREADABLE = (
    *(DecodeError, onnx.checker.ValidationError),
    *(KeyError, MemoryError, OSError, OverflowError, TypeError, ValueError),
)
"""What onnx and numpy raise for files that are broken or something else."""
FAMILY = "imported"
_IN_A_FILE: dict[str, Any] = {
    "save_as_external_data": True,
    "location": WEIGHTS,
    "size_threshold": 1024,
    "convert_attribute": True,
}
"""Weights of at least a kilobyte are stored one after the other in one file, not in the graphs."""
_TOLERANCE = 1e-4
"""The largest difference of the bundle's numbers from those of the network that is imported."""
_ROWS = 5
_SOFTMAX = ("presence = Softmax <axis = 1> (logits)",)
_NO_POSES = (
    "poses_axis = Constant <value_ints = [2]> ()",
    "poses_end = Constant <value_ints = [0]> ()",
    "poses_one = Unsqueeze (presence, poses_axis)",
    "poses = Slice (poses_one, poses_end, poses_end, poses_axis)",
)
"""Nodes that complete an encoder, in the textual syntax of ONNX."""


class Foreign(NamedTuple):
    """A network that was trained elsewhere, as graphs."""

    encoder: onnx.ModelProto
    decoder: onnx.ModelProto | None
    expected: Encoding[Floats] | None = None
    """What a module of PyTorch answers to `_noise`; None where the encoder was an ONNX file."""


def read_foreign(
    source: str,
    *,
    decoder: Path | None = None,
    image_shape: tuple[int, int, int] | None = None,
    logits: bool = False,
) -> Foreign:
    """Read a network; its encoder gives presence and poses, its decoder takes poses and classes.

    Args:
        source: an ONNX file, or `FILE.py:NAME`, where NAME is a `torch.nn.Module` or a function
            without arguments that returns one. The module maps images to presence, or to presence
            and poses; its attribute `decoder`, if it has one, is a module that maps poses and
            classes to images.
        decoder: an ONNX file, for a source that is an ONNX file.
        image_shape: (C, H, W), for a module.
        logits: whether the first output is logits, which a softmax turns into presence.

    Raises:
        ExportError: it cannot be read, or has not the inputs and outputs of a bundle.
    """
    file, colon, name = source.rpartition(":")
    if colon and file.endswith(".py"):
        if image_shape is None:
            raise ExportError("a module does not say the size of its images: give --size")
        foreign = _trace(_load_module(Path(file), name), image_shape, logits=logits)
    else:
        foreign = Foreign(_read_onnx(Path(source)), _read_onnx(decoder) if decoder else None)
        _complete_encoder(foreign.encoder, logits=logits, has_poses=decoder is not None)
    if foreign.decoder:
        _complete_decoder(foreign.decoder)
    return foreign


def _load_module(file: Path, name: str) -> nn.Module:
    found = getattr(run_file(file), name, None)
    module = found() if callable(found) and not isinstance(found, nn.Module) else found
    if not isinstance(module, nn.Module):
        raise ExportError(f"{file} has no {name!r} that is a torch.nn.Module or returns one")
    return module.cpu().float().eval()


class _Encoder(nn.Module):
    """A network's presence and poses, which have no numbers if it has no decoder."""

    def __init__(self, network: nn.Module, *, logits: bool) -> None:
        super().__init__()
        self.network, self.logits = network, logits
        self.decodes = isinstance(getattr(network, "decoder", None), nn.Module)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.network(images)
        presence, *poses = (outputs,) if isinstance(outputs, Tensor) else outputs
        if self.logits:
            presence = presence.softmax(dim=1)
        return presence, poses[0] if self.decodes else presence[..., None][..., :0]


def _trace(network: nn.Module, image_shape: tuple[int, int, int], *, logits: bool) -> Foreign:
    wrapped, images = _Encoder(network, logits=logits), torch.from_numpy(_noise(image_shape))
    try:
        with torch.inference_mode():
            presence, poses = wrapped(images)
    except (RuntimeError, IndexError) as error:
        shape = "x".join(map(str, image_shape))
        raise ExportError(f"the module does not take images of {shape}: {error}") from error
    encoder, decoder = to_onnx(wrapped, {"images": images}, Encoding._fields), None
    if wrapped.decodes:
        inputs = {"poses": poses[:, 0].clone(), "classes": torch.zeros(_ROWS, dtype=torch.int64)}
        decoder = to_onnx(network.decoder, inputs, ("images",))  # type: ignore[arg-type]
    return Foreign(encoder, decoder, Encoding(presence.numpy(), poses.numpy()))


def _noise(image_shape: tuple[int, int, int]) -> Floats:
    """Images (N, C, H, W) that a network is tried with: black, white, and noise."""
    images = np.random.default_rng(0).random((_ROWS, *image_shape), np.float32)
    images[0], images[1] = 0, 1
    return images


def _read_onnx(path: Path) -> onnx.ModelProto:
    """Read a graph, and the weights that it has in a file of their own.

    onnx refuses weights outside the folder of the graph, links to others, and what is no file.

    Raises:
        ExportError: it is no ONNX file, or names another file than `NAME.data` for its weights.
    """
    if not path.is_file():
        raise ExportError(f"{path} cannot be read as an ONNX file: there is no such file")
    try:
        _check_external(onnx.load(path, load_external_data=False), path)
        graph = onnx.load(path)
        onnx.checker.check_model(graph)
    except _UNREADABLE as error:
        raise ExportError(f"{path} cannot be read as an ONNX file: {error}") from error
    if (opset := graph.opset_import[0].version) < _OLDEST_OPSET:
        raise ExportError(f"{path} has opset {opset}: export it with {_OLDEST_OPSET} or later")
    return graph


def _check_external(graph: onnx.ModelProto, path: Path) -> None:
    """Refuse weights in a file whose name does not say that it is the model's."""
    allowed = {f"{path.name}.data", f"{path.stem}.data", f"{path.name}_data"}
    for tensor in external_data_helper._get_all_tensors(graph):  # noqa: SLF001  has no public name
        if external_data_helper.uses_external_data(tensor):
            location = external_data_helper.ExternalDataInfo(tensor).location
            if location not in allowed:
                raise ValueError(
                    f"its weights are in {location!r}; export them to {path.name}.data"
                )


@app.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            help="An ONNX file that maps images to presence, and perhaps to poses; or "
            "FILE.py:NAME of a torch.nn.Module, or of a function that returns one."
        ),
    ],
    *,
    name: Annotated[str, typer.Option(help="Name of the bundle.")],
    classes: Annotated[
        str | None, typer.Option(help="Names of the classes in order, separated by commas.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of pictures by class, on which the bundle is scored and its poses are "
            "analysed. Without --classes, the subfolders name the classes."
        ),
    ] = None,
    skip_unreadable: SkipUnreadable = False,
    decoder: Annotated[
        Path | None,
        typer.Option(help="ONNX file of the decoder, which maps poses and classes to images."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Height and width of a module's images.")
    ] = None,
    channels: Annotated[int, typer.Option(min=1, help="Channels of a module's images.")] = 1,
    preprocess: Annotated[
        str, typer.Option(help="How images are fitted: crop, stretch or digit (light strokes).")
    ] = "crop",
    presence: Annotated[
        str, typer.Option(help="What the first output is: length, activation or probability.")
    ] = "length",
    logits: Annotated[
        bool, typer.Option("--logits", help="The first output is logits; a softmax is added.")
    ] = False,
    bundles: Annotated[Path, typer.Option(help="Folder to write the bundle to.")] = Path("bundles"),
    replace: Replace = False,
) -> None:
    """Write the bundle of a network that was trained elsewhere, after checking its answers."""
    if not (classes or data):
        raise typer.BadParameter("give --classes, or --data with a folder for each class")
    names = classes.split(",") if classes else find_pictures(data or Path()).classes
    facts: dict[str, Any] = {
        "name": name,
        "dataset": name,
        "class_names": tuple(one.strip() for one in names),
        "preprocess": preprocess,
        "presence": "probability" if logits else presence,
        "training": {"imported": Path(source.rpartition(":")[0] or source).name},
    }
    target, shape = bundles / name, (channels, size, size) if size else None
    refuse_other(target, facts["training"], replace_other=replace)
    foreign = read_foreign(source, decoder=decoder, image_shape=shape, logits=logits)
    with replacing_folder(target) as folder:
        _write_bundle(foreign, facts, folder)
    if data:
        analyse_on(Bundle.open(target), data, skip_unreadable=skip_unreadable)
    console.print(f"wrote {target}")
    console.print(f"next: CAPSNET_BUNDLES={shlex.quote(str(bundles))} python -m service")


def _write_bundle(foreign: Foreign, facts: Mapping[str, Any], folder: Path) -> None:
    """Write the bundle of a network, and check that it answers alike.

    Args:
        facts: entries of the manifest that its graphs do not tell, `name` and `class_names` among
            them.

    Raises:
        ExportError: the graphs do not fit a bundle or the class names.
    """
    image_shape = _image_shape(foreign.encoder)
    images = _noise(image_shape)
    graphs: dict[GraphRole, onnx.ModelProto] = {"encoder": foreign.encoder}
    if foreign.decoder:
        graphs["decoder"] = foreign.decoder
    (folder / WEIGHTS).touch()
    for role, graph in graphs.items():
        onnx.save(graph, folder / f"{role}.onnx", **_IN_A_FILE)
    session = open_session(folder / "encoder.onnx")
    answers = Encoding(*session.run(Encoding._fields, {"images": images}))
    _check_answers(answers, len(facts["class_names"]))
    try:
        manifest = Manifest(
            family=FAMILY,
            family_title="a network trained elsewhere",
            channels=image_shape[0],
            height=image_shape[1],
            width=image_shape[2],
            class_dim=answers.poses.shape[2],
            offers=("decode",) if foreign.decoder else (),
            graphs={role: f"{role}.onnx" for role in graphs},
            layers=(),
            opset=foreign.encoder.opset_import[0].version,
            **facts,
        )
    except ValueError as error:
        raise ExportError(str(error)) from error
    _compare(foreign.expected or answers, images, Runtime(seal(manifest, folder), device="cpu"))


def analyse_on(bundle: Bundle, folder: Path, *, skip_unreadable: bool = False) -> None:
    """Score a folder of pictures by class and, if the network has poses, analyse them on it.

    Raises:
        training.data.source.DatasetError: the folder cannot be read.
    """
    scores = score_folder(open_runtime(bundle), folder, skip_unreadable=skip_unreadable)
    if bundle.manifest.class_dim:
        analyse_imported(bundle, scores.answers, source=f"folder {folder.name}")
    console.print(scores.headline())


def _image_shape(encoder: onnx.ModelProto) -> tuple[int, int, int]:
    """The shape (C, H, W) of the encoder's images."""
    images = _inputs(encoder)[0].type.tensor_type
    axes = [axis.dim_value for axis in images.shape.dim]
    if len(axes) != 4 or images.elem_type != TensorProto.FLOAT or min(axes[1:]) < 1 or axes[0]:
        raise ExportError(
            "the encoder takes float32 images (N, C, H, W) of fixed C, H and W and with a dynamic "
            f"first axis; this one takes ({', '.join(str(axis or '?') for axis in axes)})"
        )
    return (axes[1], axes[2], axes[3])


def _inputs(graph: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    weights = {weight.name for weight in graph.graph.initializer}
    return [value for value in graph.graph.input if value.name not in weights]


def _complete_encoder(encoder: onnx.ModelProto, *, logits: bool, has_poses: bool) -> None:
    """Add presence to an encoder that gives logits, and poses of no numbers where it has none."""
    body, first = encoder.graph, "logits" if logits else "presence"
    _check_names("inputs of the encoder", _inputs(encoder), ["images"])
    _check_names("outputs of the encoder", body.output, [first, "poses"][: 1 + has_poses])
    body.node.extend(map(onnx.parser.parse_node, _SOFTMAX * logits + _NO_POSES * (not has_poses)))
    del body.output[:]
    for name, axes in (("presence", ("N", "K")), ("poses", ("N", "K", "D"))):
        body.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, axes))


def _complete_decoder(decoder: onnx.ModelProto) -> None:
    """Add an input for classes where there is none: exporters leave out what a network ignores."""
    if len(_inputs(decoder)) == 1:
        classes = helper.make_tensor_value_info("classes", TensorProto.INT64, ("M",))
        decoder.graph.input.append(classes)
    _check_names("inputs of the decoder", _inputs(decoder), ["poses", "classes"])
    _check_names("outputs of the decoder", decoder.graph.output, ["images"])


def _check_names(what: str, values: Iterable[onnx.ValueInfoProto], expected: Sequence[str]) -> None:
    names = [value.name for value in values]
    if names != list(expected):
        raise ExportError(
            f"the {what} are {', '.join(names)}, not {', '.join(expected)}: export it with these "
            "names"
        )


def _check_answers(answers: Encoding[Floats], count: int) -> None:
    """Refuse what is not the presence, in [0, 1], and the poses of `count` classes."""
    presence, poses = answers
    if presence.shape != (_ROWS, count) or poses.ndim != 3 or poses.shape[:2] != (_ROWS, count):
        raise ExportError(
            f"for {_ROWS} images and {count} classes, the presence is {presence.shape} and the "
            f"poses are {poses.shape}"
        )
    if not (presence.min() >= 0 and presence.max() <= 1 + _TOLERANCE):  # also of NaN
        raise ExportError(
            f"the presence is between {presence.min():.3g} and {presence.max():.3g}, not in "
            "[0, 1]: of a network that ends with logits, give --logits"
        )


def _compare(expected: Encoding[Floats], images: Floats, runtime: Runtime) -> None:
    """Refuse a bundle that does not answer as expected, an image alone or in a batch."""
    for count in (1, _ROWS):
        answers = runtime.encode(images[:count])
        for what, actual, wanted in zip(Encoding._fields, answers, expected, strict=True):
            refuse_difference(f"{what} of {count} images", actual, wanted[:count], _TOLERANCE)
    if "decode" in runtime.bundle.manifest.offers:
        decoded = runtime.decode(expected.poses[:, 0], np.zeros(_ROWS, np.int64))
        if decoded.shape != images.shape or not np.isfinite(decoded).all():
            raise ExportError(
                f"the decoder's images are {decoded.shape}, not finite numbers {images.shape}"
            )

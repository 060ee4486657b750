"""The messages of the gRPC service, described here rather than generated.

Of the published `inference` package these are the messages of six methods, with the same names
and numbers, so any client of it understands them. They live in a pool of their own: the process may
hold another description of the same package.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClassesForFiles

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
_FIELD = re.compile(r"(repeated |map |choice )?(\w+) (\w+) = (\d+)")
_MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live = 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready = 1",
    "ModelReadyRequest": "string name = 1; string version = 2",
    "ModelReadyResponse": "bool ready = 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name = 1; string version = 2; repeated string extensions = 3",
    "ModelMetadataRequest": "string name = 1; string version = 2",
    "TensorMetadata": "string name = 1; string datatype = 2; repeated int64 shape = 3",
    "ModelMetadataResponse": """
        string name = 1; repeated string versions = 2; string platform = 3;
        repeated TensorMetadata inputs = 4; repeated TensorMetadata outputs = 5""",
    "InferParameter": """
        choice bool bool_param = 1; choice int64 int64_param = 2; choice string string_param = 3;
        choice double double_param = 4; choice uint64 uint64_param = 5""",
    "InferTensorContents": """
        repeated bool bool_contents = 1; repeated int32 int_contents = 2;
        repeated int64 int64_contents = 3; repeated uint32 uint_contents = 4;
        repeated uint64 uint64_contents = 5; repeated float fp32_contents = 6;
        repeated double fp64_contents = 7; repeated bytes bytes_contents = 8""",
    "InferInputTensor": """
        string name = 1; string datatype = 2; repeated int64 shape = 3;
        map InferParameter parameters = 4; InferTensorContents contents = 5""",
    "InferRequestedOutputTensor": "string name = 1; map InferParameter parameters = 2",
    "InferOutputTensor": """
        string name = 1; string datatype = 2; repeated int64 shape = 3;
        map InferParameter parameters = 4; InferTensorContents contents = 5""",
    "ModelInferRequest": """
        string model_name = 1; string model_version = 2; string id = 3;
        map InferParameter parameters = 4; repeated InferInputTensor inputs = 5;
        repeated InferRequestedOutputTensor outputs = 6; repeated bytes raw_input_contents = 7""",
    "ModelInferResponse": """
        string model_name = 1; string model_version = 2; string id = 3;
        map InferParameter parameters = 4; repeated InferOutputTensor outputs = 5;
        repeated bytes raw_output_contents = 6""",
}
"""The messages' fields, as a .proto file has them.

The keys of a `map` are strings; one field of a `choice` is set.
"""


@cache
def messages() -> dict[str, Any]:
    """The classes of the messages, by name without the package."""
    file = FileDescriptorProto(name="inference.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for kind, type_, field, number in _FIELD.findall(fields):
            if kind == "choice " and not message.oneof_decl:
                message.oneof_decl.add(name="parameter_choice")
            added = message.field.add(name=field, number=int(number))
            added.label = (
                added.LABEL_REPEATED if kind in ("repeated ", "map ") else added.LABEL_OPTIONAL
            )
            if kind == "map ":
                entry = message.nested_type.add(name=f"{field.capitalize()}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, label=1, type=added.TYPE_STRING)
                _set_type(entry.field.add(name="value", number=2, label=1), type_)
                _set_type(added, f"{name}.{entry.name}")
                continue
            if kind == "choice ":
                added.oneof_index = 0
            _set_type(added, type_)
    pool = DescriptorPool()
    pool.Add(file)
    classes = GetMessageClassesForFiles([file.name], pool)
    return {name.removeprefix(f"{PACKAGE}."): message for name, message in classes.items()}


def _set_type(field: FieldDescriptorProto, type_: str) -> None:
    """Set a field's type: one of protobuf's own, or a message of the package."""
    plain = f"TYPE_{type_.upper()}"
    if hasattr(field, plain):
        field.type = getattr(field, plain)
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{type_}"

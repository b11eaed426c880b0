"""Pulumi's wire format of resource values, to and from plain Python values."""

from typing import Any

from google.protobuf import struct_pb2

from sandbox.providers.values import Object, Secret

# https://github.com/pulumi/pulumi/blob/master/sdk/go/common/resource/properties.go
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"


def plain(value: struct_pb2.Value) -> Any:
    """A value off the wire. Nulls in objects are dropped: to every API here they mean unset."""
    match value.WhichOneof("kind"):
        case "struct_value":
            fields = value.struct_value.fields
            if _SIGNATURE in fields and fields[_SIGNATURE].string_value == _SECRET:
                return Secret(plain(fields["value"]))
            return plain_object(value.struct_value)
        case "list_value":
            return [plain(item) for item in value.list_value.values]
        case "number_value":
            return int(value.number_value) if value.number_value.is_integer() else value.number_value
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case _:
            return None


def plain_object(struct: struct_pb2.Struct) -> Object:
    """An object off the wire."""
    return {key: item for key, value in struct.fields.items() if (item := plain(value)) is not None}


def wire(value: Any) -> struct_pb2.Value:
    """A value for the wire."""
    match value:
        case Secret(inner):
            fields = {_SIGNATURE: struct_pb2.Value(string_value=_SECRET), "value": wire(inner)}
            return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=fields))
        case dict():
            return struct_pb2.Value(struct_value=wire_object(value))
        case list():
            return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[wire(item) for item in value]))
        case bool():
            return struct_pb2.Value(bool_value=value)
        case int() | float():
            return struct_pb2.Value(number_value=value)
        case None:
            return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
        case _:
            return struct_pb2.Value(string_value=str(value))


def wire_object(value: Object) -> struct_pb2.Struct:
    """An object for the wire."""
    return struct_pb2.Struct(fields={key: wire(item) for key, item in value.items()})

#!/usr/bin/env python3
"""protoc's plugin that writes the client's side of DecodingOptions: `make proto` runs it.

Names, types and docs come from the proto, so that an option is written down once for the client (docs/decisions/0012).
"""

import sys
import textwrap
from collections.abc import Iterator

from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

MESSAGE = "DecodingOptions"
TYPES = {
    FieldDescriptorProto.TYPE_INT32: "int",
    FieldDescriptorProto.TYPE_INT64: "int",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "str",
}
MESSAGES = {"Phrase": "Phrase", "SequenceBias": "tuple[Phrase, float]"}
"""What stands for a message: see dragoman/wire/options.py."""
MESSAGES_OF_FILE, FIELDS_OF_MESSAGE = 4, 2
"""Field numbers in descriptor.proto, which the paths of comments are made of."""
WIDTH = 116
"""Of a line, less its indentation."""

HEAD = '''"""{message} as plain Python. Generated from {file} by `make proto`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

{imports}
'''


def main() -> None:
    """Reads protoc's request from standard input and writes the answer to standard output."""
    request = CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    response = CodeGeneratorResponse(supported_features=CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL)
    for file in request.proto_file:
        for index, message in enumerate(file.message_type):
            if message.name == MESSAGE:
                name = file.name.removesuffix(".proto") + "_options.py"
                response.file.add(name=name, content="\n".join(module(file, index, message)) + "\n")
    sys.stdout.buffer.write(response.SerializeToString())


def module(file: FileDescriptorProto, index: int, message: DescriptorProto) -> Iterator[str]:
    """The lines of the module."""
    docs = {tuple(location.path): location.leading_comments for location in file.source_code_info.location}
    of_message = (MESSAGES_OF_FILE, index)
    told = {
        field.name: " ".join(docs[*of_message, FIELDS_OF_MESSAGE, number].split()).removeprefix("Optional. ")
        for number, field in enumerate(message.field)
    }
    summary = " ".join(docs[of_message].partition("\n\n")[0].split())
    enums = {_type(field) for field in message.field if field.type == FieldDescriptorProto.TYPE_ENUM}
    imported = ", ".join(sorted({*enums, "Phrase"}))
    yield HEAD.format(message=MESSAGE, file=file.name, imports=f"from dragoman.wire.options import {imported}\n")
    yield "class DecodingKeywords(TypedDict, total=False):"
    yield from _docstring(f"{summary} What is left out, or None, takes the model's default.")
    yield ""
    for field in message.field:
        yield f"    {field.name}: {_type(field)} | None"
        yield from _docstring(told[field.name])
    yield "\n\n@dataclass(frozen=True, slots=True)\nclass Decoding:"
    yield from _docstring(summary)
    yield ""
    for field in message.field:
        yield f"    {field.name}: {_type(field)}"
        yield from _docstring(told[field.name])
    yield "\n\nDOCS = {"
    for field in message.field:
        yield f'    "{field.name}": {told[field.name]!r},'
    yield '}\n"""What the command line says of each."""'
    yield "\nGROUPS = {"
    for name, group in _groups(file, of_message, message):
        yield f'    "{name}": "{group}",'
    yield '}\n"""What each is about."""'


def _groups(
    file: FileDescriptorProto, of_message: tuple[int, int], message: DescriptorProto
) -> Iterator[tuple[str, str]]:
    """The heading that each field stands under: a comment apart from its own, the first one right after the brace."""
    places = {tuple(place.path): place for place in file.source_code_info.location}
    group = places[of_message].trailing_comments.strip()
    for number, field in enumerate(message.field):
        for heading in places[*of_message, FIELDS_OF_MESSAGE, number].leading_detached_comments:
            group = heading.strip()
        yield field.name, group


def _type(field: FieldDescriptorProto) -> str:
    if field.type == FieldDescriptorProto.TYPE_ENUM:
        return field.type_name.rpartition(".")[2]
    is_message = field.type == FieldDescriptorProto.TYPE_MESSAGE
    name = MESSAGES[field.type_name.rpartition(".")[2]] if is_message else TYPES[field.type]
    return f"Sequence[{name}]" if field.label == FieldDescriptorProto.LABEL_REPEATED else name


def _docstring(text: str) -> Iterator[str]:
    lines = textwrap.wrap(f'"""{text}"""', WIDTH, break_long_words=False)
    if len(lines) > 1:
        lines = [*textwrap.wrap(f'"""{text}', WIDTH), '"""']
    return (f"    {line}" for line in lines)


if __name__ == "__main__":
    main()

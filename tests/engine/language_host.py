"""A stand-in for Pulumi's language plugin for Python, which `pulumi new` needs and which is not built here.

It installs no dependencies and runs no program.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, override

import grpc
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2


class _Host(language_pb2_grpc.LanguageRuntimeServicer):
    @override
    def Handshake(self, request: Any, context: Any) -> Any:
        return language_pb2.LanguageHandshakeResponse()

    @override
    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version="3.0.0")

    @override
    def RuntimeOptionsPrompts(self, request: Any, context: Any) -> Any:
        return language_pb2.RuntimeOptionsResponse()

    @override
    def Template(self, request: Any, context: Any) -> Any:
        return language_pb2.TemplateResponse()

    @override
    def GetRequiredPackages(self, request: Any, context: Any) -> Any:
        return language_pb2.GetRequiredPackagesResponse()

    @override
    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:
        yield language_pb2.InstallDependenciesResponse(stdout=b"dependencies\n")


def install(folder: Path) -> None:
    """Write the plugin's program to a folder that is on the engine's PATH."""
    program = folder / "pulumi-language-python"
    root = Path(__file__).parents[2]
    program.write_text(f'#!/bin/sh\ncd {root} && exec {sys.executable} -m tests.engine.language_host "$@"\n')
    program.chmod(0o755)


if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(4))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(_Host(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    # The engine that started it ends it with a signal.
    server.wait_for_termination()

"""Replacements for the published `gcp` and `kubernetes` Pulumi plugins, for a sandbox without a cloud.

Each plugin is a separate program (`python -m sandbox.providers.gcp`, `.kubernetes`) that the Pulumi engine starts.
"""

import sys

from google.rpc import status_pb2

# Pulumi's library for plugins and Google's clients, such as gcsfs, each define the message google.rpc.Status, and a
# process can have only one definition. Pulumi's copy has the same fields, so that Google's replaces it.
sys.modules["pulumi.runtime.proto.status_pb2"] = status_pb2

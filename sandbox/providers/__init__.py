"""Replacements for the published `gcp` and `kubernetes` Pulumi plugins, for a sandbox without a cloud.

Each plugin is a separate program (`python -m sandbox.providers.gcp`, `.kubernetes`) that the Pulumi engine starts.
"""

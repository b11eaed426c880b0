"""Implements `python -m workloads.data`, which makes and checks token folders.

Paths may be local or URLs such as `gs://BUCKET/FOLDER`.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence

from workloads.data.documents import CONTENT, TextField, Turns, data_files
from workloads.data.encoders import BYTES, load_encoder
from workloads.data.prepare import Progress, Request, prepare
from workloads.data.token_folder import DataFault, Manifest, TokenFolder

_REPORT_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    # gcsfs warns at every call that it found no default credentials. Real failures are raised anyway.
    logging.getLogger("gcsfs").setLevel(logging.ERROR)
    try:
        return options.command(options)
    except (DataFault, FileNotFoundError) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.data", description="Make and check token folders for the trainer."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    prepare_ = commands.add_parser("prepare", help="make a token folder of text, JSON lines, parquet or Arrow")
    prepare_.add_argument(
        "--input",
        nargs="+",
        required=True,
        metavar="FILE|FOLDER",
        help="files *.jsonl, *.json, *.parquet, *.arrow, others are text; or a folder of such files, as a Hugging Face"
        " dataset",
    )
    prepare_.add_argument("--split", default="train", help="split of a folder to use (%(default)s)")
    prepare_.add_argument("--output", required=True, metavar="FOLDER", help="folder to make")
    prepare_.add_argument(
        "--tokenizer",
        default=BYTES,
        metavar=f"{BYTES}|FILE",
        help="bytes, or a Hugging Face tokenizer.json (%(default)s)",
    )
    prepare_.add_argument("--text-field", default="text", help="field of a record with its text (%(default)s)")
    prepare_.add_argument(
        "--end-of-document", default="\n", metavar="TEXT", help="text to add after each document (a line end)"
    )
    _add_conversations(prepare_)
    prepare_.add_argument(
        "--processes",
        type=_positive,
        default=os.process_cpu_count() or 1,
        help="number of processes (%(default)s)",
    )
    prepare_.set_defaults(command=_prepare)
    check = commands.add_parser("check", help="compare every byte of a token folder with its manifest")
    check.add_argument("folder", metavar="FOLDER")
    check.set_defaults(command=_check)
    return parser


def _add_conversations(prepare_: argparse.ArgumentParser) -> None:
    group = prepare_.add_argument_group("conversations, where only the answers are learned")
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--prompt-field", metavar="NAME", help="field with the prompt; --text-field has the completion")
    kind.add_argument(
        "--messages-field", metavar="NAME", help="field with the list of messages, each with `role` and `content`"
    )
    group.add_argument("--sequence-length", type=_positive, metavar="TOKENS", help="tokens per sequence of training")
    group.add_argument(
        "--turn",
        default=CONTENT,
        metavar="TEXT",
        help="template of a message with {role} and {content} (%(default)s)",
    )
    group.add_argument(
        "--begin", default="", metavar="TEXT", help="text to add before each conversation (default: none)"
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def _prepare(options: argparse.Namespace) -> int:
    inputs = tuple(file for path in options.input for file in data_files(path, options.split))
    columns = _conversation(options)
    fields = Turns(columns, options.turn, options.begin) if columns else TextField(options.text_field)
    request = Request(
        inputs, options.output, fields, options.end_of_document, options.sequence_length, options.processes
    )
    manifest = prepare(request, load_encoder(options.tokenizer), _Report(len(inputs)))
    print(_describe(options.output, manifest))
    return 0


def _conversation(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the fields of a conversation. Empty for documents."""
    columns = (options.messages_field,) if options.messages_field else ()
    if options.prompt_field:
        columns = (options.prompt_field, options.text_field)
    if bool(columns) != (options.sequence_length is not None):
        raise DataFault("--sequence-length needs --prompt-field or --messages-field; add or remove one of them")
    return columns


def _check(options: argparse.Namespace) -> int:
    folder = TokenFolder.open(options.folder)
    folder.check("full")
    print(_describe(options.folder, folder.manifest))
    return 0


def _describe(folder: str, manifest: Manifest) -> str:
    packed = manifest.packed
    rows = f", {packed.padding / manifest.tokens:.1%} padding, {packed.cut:,} documents cut" if packed else ""
    return (
        f"{folder}: {manifest.tokens:,} tokens of {manifest.documents:,} documents in {len(manifest.files):,} files,"
        f" {manifest.dtype}, vocabulary {manifest.vocabulary:,}, sha256 {manifest.sha256[:12]}{rows}"
    )


class _Report:
    """Prints progress to stderr at intervals."""

    def __init__(self, files: int) -> None:
        self._files = files
        self._began = self._last = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last < _REPORT_SECONDS:
            return
        self._last = now
        rate = progress.tokens / (now - self._began)
        print(
            f"{progress.files} of {self._files} files: {progress.documents:,} documents,"
            f" {progress.tokens:,} tokens, {rate:,.0f} tokens/s",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())

"""The server's side of a WebSocket on a connection that an HTTP server has accepted.

Owns the handshake of https://www.rfc-editor.org/rfc/rfc6455#section-4.2; frames are those of the client's library.
"""

import base64
import hashlib
import socket
from collections.abc import Collection
from email.message import Message

import websocket

_KEY_SUFFIX = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Of every WebSocket server."""


class ServerSide(websocket.WebSocket):
    """A WebSocket whose handshake is done; other than a client's, its frames are not masked."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self.sock = connection
        self.connected = True

    def send_frame(self, frame: websocket.ABNF) -> int:
        frame.mask_value = 0
        return super().send_frame(frame)


def chosen_protocol(headers: "Message[str, str]", spoken: Collection[str]) -> str | None:
    """The first protocol that the client asks for and that is spoken; None: this is no such handshake."""
    if headers.get("Upgrade", "").lower() != "websocket" or not headers.get("Sec-WebSocket-Key"):
        return None
    asked = headers.get("Sec-WebSocket-Protocol", "").split(",")
    return next((protocol for each in asked if (protocol := each.strip()) in spoken), None)


def acceptance(headers: "Message[str, str]", protocol: str) -> dict[str, str]:
    """Headers of the answer that ends the handshake."""
    digest = hashlib.sha1((headers["Sec-WebSocket-Key"] + _KEY_SUFFIX).encode(), usedforsecurity=False).digest()
    return {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": base64.b64encode(digest).decode(),
        "Sec-WebSocket-Protocol": protocol,
    }

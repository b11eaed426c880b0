"""The handshake; what goes over the connection is tested with commands in `test_exec_session`."""

from email.message import Message

import pytest

from sandbox.node_agent.web_socket import acceptance, chosen_protocol

SPOKEN = ("v5.channel.k8s.io", "v4.channel.k8s.io")


def headers(**changed: str) -> "Message[str, str]":
    """As Go writes their names."""
    found: Message[str, str] = Message()
    asked = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-Websocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-Websocket-Protocol": "v5.channel.k8s.io",
    }
    for name, value in {**asked, **{key.replace("_", "-"): value for key, value in changed.items()}}.items():
        found[name] = value
    return found


def test_the_key_is_answered_as_the_standard_has_it() -> None:
    # https://www.rfc-editor.org/rfc/rfc6455#section-1.3
    answered = acceptance(headers(), "v5.channel.k8s.io")
    assert answered["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    assert answered["Sec-WebSocket-Protocol"] == "v5.channel.k8s.io"


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("v5.channel.k8s.io", "v5.channel.k8s.io"),
        ("v9.channel.k8s.io, v4.channel.k8s.io,v5.channel.k8s.io", "v4.channel.k8s.io"),
        ("channel.k8s.io", None),
        ("", None),
    ],
)
def test_the_first_protocol_that_both_speak_is_chosen(asked: str, chosen: str | None) -> None:
    assert chosen_protocol(headers(Sec_Websocket_Protocol=asked), SPOKEN) == chosen


@pytest.mark.parametrize("changed", [{"Upgrade": "SPDY/3.1"}, {"Sec_Websocket_Key": ""}])
def test_what_is_no_handshake_is_none(changed: dict[str, str]) -> None:
    assert chosen_protocol(headers(**changed), SPOKEN) is None

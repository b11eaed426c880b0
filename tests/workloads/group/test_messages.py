"""`workloads.group.messages`: what is sent arrives, in any pieces, and what is no message is recognised."""

import socket

import pytest

from workloads.group.messages import (
    Alive,
    BeginWith,
    Cut,
    HasState,
    Introduction,
    Lines,
    Message,
    Refused,
    SliceLost,
    Welcome,
    decode,
    encode,
)
from workloads.group.protocol import Begin, Decided, Hello, Ready
from workloads.group.view import Endpoint, HostId, View

HOST = HostId(1, 0)
ENDPOINT = Endpoint("token", "127.0.0.1:1", "127.0.0.1:2")
READY = Ready(HOST, 3, 17, {"kind": "step", "step": 17}, holds=True)
MESSAGES: list[Message] = [
    Introduction("run-0", Hello(HOST, 3, 16, {"open": True}, READY), ENDPOINT),
    Introduction("run-0", Hello(HOST, 0, None, None, None), ENDPOINT),
    Introduction("run-0", Hello(HOST, 0, None, None, None, refused=(0, 2, 0)), ENDPOINT),
    Welcome(True, "token"),
    HasState(),
    Refused(),
    Cut((0, 2)),
    Alive(),
    BeginWith(Begin(View(4, (0, 1, 2), 0, {2: 1}), 16, {"open": True}), {HOST: ENDPOINT}),
    SliceLost(HOST, "ended its connection"),
    READY,
    Decided(3, 17, {"open": False, "leave": [1]}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message):
    assert decode(encode(message)) == message


def test_messages_arrive_whatever_pieces_they_come_in():
    lines = Lines(socket.socket())
    stream = b"".join(map(encode, MESSAGES))

    found = [message for byte in stream for message in lines.received(bytes([byte]))]

    assert found == MESSAGES


def test_messages_that_are_not_taken_come_the_next_time():
    lines = Lines(socket.socket())
    first = next(iter(lines.received(b"".join(map(encode, MESSAGES)))))

    assert [first, *lines.received(b"")] == MESSAGES


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1", b"{}", b'{"kind": "Ready"}', b"[1]", b"\xff\xfe", b'{"kind": 3}'])
def test_what_is_no_message_is_an_error(line: bytes):
    with pytest.raises(ValueError, match="not a message of a group"):
        decode(line)

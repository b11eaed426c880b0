"""What must hold of the networks that slices talk over."""

from collections.abc import Iterator

from policy.resources import NETWORK, at
from policy.rule import About, Declared, Group, Level, ResourceRule, Rule, Severity

_LARGEST_MTU = 8896


def _jumbo_frames(network: Declared) -> Iterator[str]:
    mtu = at(network.properties, "mtu")
    if mtu != _LARGEST_MTU:
        yield f"expected mtu {_LARGEST_MTU}, got {mtu or 'the default of 1460'}"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "jumbo-frames",
            Group.TPU_SHAPE,
            Severity.LOW,
            Level.ADVISORY,
            "Networks have the largest frames that Google Cloud has",
            "Slices exchange gradients over the network at every step; small frames cost bandwidth, and a live network"
            " cannot change them while machines use it.",
            f"Set mtu={_LARGEST_MTU} on the network.",
            "https://cloud.google.com/vpc/docs/mtu",
        ),
        (NETWORK,),
        _jumbo_frames,
    ),
)

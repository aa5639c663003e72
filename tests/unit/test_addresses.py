"""Only public addresses are reached, whatever IPv6 they are wrapped in, and what the operator allowed."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.worker.addresses import NOT_PUBLIC_IPV4, Reachable, not_public, plain
from tests.ssrf_corpus import EMBEDDED, IPV4_BLOCKS, IPV6, METADATA, PUBLIC, PUBLIC6, embeddings

edges = {int(edge) + step for block in NOT_PUBLIC_IPV4 for edge in (block[0], block[-1]) for step in (-1, 0, 1)}
ipv4 = st.ip_addresses(v=4) | st.sampled_from([IPv4Address(edge) for edge in sorted(edges) if 0 <= edge < 2**32])


@pytest.mark.parametrize("address", [PUBLIC, PUBLIC6, "1.1.1.1", "8.8.8.8", "223.255.255.255", "2a00:1450:4001::1"])
def test_public_addresses(address: str) -> None:
    assert not_public(ip_address(address)) is None


@pytest.mark.parametrize("block", IPV4_BLOCKS)
def test_special_blocks_are_not_public_from_edge_to_edge(block: str) -> None:
    network = IPv4Network(block)
    for address in (network[0], network[network.num_addresses // 2], network[-1]):
        assert not_public(address)


@pytest.mark.parametrize("address", [*METADATA, *IPV6])
def test_other_special_addresses_are_not_public(address: str) -> None:
    assert not_public(ip_address(address))


@given(ipv4)
def test_what_carries_an_ipv4_address_is_never_more_public_than_that(address: IPv4Address) -> None:
    verdict = not_public(address)
    for name, wrapped in embeddings(address).items():
        if name in ("mapped", "nat64"):
            assert plain(wrapped) == address
            assert not_public(wrapped) == verdict
        else:
            assert not_public(wrapped), name


@given(ipv4)
def test_what_is_public_is_so_for_python_too(address: IPv4Address) -> None:
    assert not_public(address) or (address.is_global and not address.is_multicast)


@given(st.ip_addresses(v=6))
@example(IPv6Address("fec0::1"))
@example(IPv6Address("2002:7f00:1::"))
@example(IPv6Address("::7f00:1"))
def test_public_ipv6_is_so_for_python_too(address: IPv6Address) -> None:
    if not_public(address) is None:
        assert plain(address).is_global
        assert not address.is_multicast
        assert plain(address) != address or address in IPv6Network("2000::/3")


@given(st.ip_addresses(v=6), st.text("abc019", min_size=1, max_size=4))
def test_an_address_of_one_interface_is_never_public(address: IPv6Address, scope: str) -> None:
    assert not_public(IPv6Address(f"{address}%{scope}"))


def refused(entries: list[str], host: str, port: int = 80, address: str = "10.0.0.1") -> bool:
    return Reachable(allowed_hosts=entries).refusal(host, port, [ip_address(address)]) is not None


@pytest.mark.parametrize(
    ("entry", "host"),
    [
        ("intern.test", "intern.test"),
        ("Intern.TEST.", "intern.test"),
        ("intern.test", "INTERN.test."),
        ("intern.test:80", "intern.test"),
        ("*.intern.test", "a.intern.test"),
        ("*.intern.test", "a.b.intern.test"),
        ("*.Intern.test:80", "a.intern.test."),
        ("münchen.test", "xn--mnchen-3ya.test"),
        ("*.münchen.test", "a.xn--mnchen-3ya.test"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "whatever.test"),
        ("10.0.0.1:80", "whatever.test"),
        ("10.0.0.0/8", "whatever.test"),
        ("0.0.0.0/0", "whatever.test"),
        ("a_b", "a_b"),
    ],
)
def test_an_allowed_host_is_reached(entry: str, host: str) -> None:
    assert not refused([entry], host)
    assert not refused(["other.test", entry], host)


@pytest.mark.parametrize(
    ("entry", "host", "address"),
    [
        ("intern.test", "a.intern.test", "10.0.0.1"),
        ("intern.test", "intern.test.evil.test", "10.0.0.1"),
        ("intern.test:81", "intern.test", "10.0.0.1"),
        ("*.intern.test", "intern.test", "10.0.0.1"),
        ("*.intern.test", "evilintern.test", "10.0.0.1"),
        ("*.intern.test:81", "a.intern.test", "10.0.0.1"),
        ("10.0.0.1:81", "10.0.0.1", "10.0.0.1"),
        ("10.0.0.2", "10.0.0.1", "10.0.0.1"),
        ("10.0.0.0/31", "10.0.0.2", "10.0.0.2"),
        ("::/0", "10.0.0.1", "10.0.0.1"),
        ("127.0.0.1", "localhost", "::1"),
        ("localhost", "127.0.0.1", "127.0.0.1"),
        ("64:ff9b::/96", "nat64.test", "fd00::1"),
    ],
)
def test_nothing_else_is(entry: str, host: str, address: str) -> None:
    assert refused([entry], host, 80, address)


@pytest.mark.parametrize("entry", ["fd00::5", "[fd00::5]", "[fd00::5]:80", "fd00::/8", "FD00:0:0::5"])
def test_an_allowed_ipv6_address(entry: str) -> None:
    assert not refused([entry], "fd00::5", 80, "fd00::5")
    assert refused([entry], "fe80::5", 80, "fe80::5")


@pytest.mark.parametrize("address", EMBEDDED)
def test_an_allowed_block_counts_for_a_mapped_address_too(address: str) -> None:
    assert not refused([address], "a.test", 80, f"::ffff:{address}")


def test_one_bad_address_among_good_ones_is_enough() -> None:
    addresses = [ip_address(PUBLIC), ip_address("127.0.0.1")]
    told = Reachable().refusal("mixed.test", 80, addresses)
    assert told == (
        "mixed.test leads to a loopback address: to allow it, set HTTP_ALLOWED_HOSTS=mixed.test:80 on the worker"
    )
    assert Reachable().refusal("mixed.test", 80, addresses[:1]) is None
    assert Reachable(allow_private=True).refusal("mixed.test", 80, addresses) is None
    assert Reachable(allowed_hosts=["127.0.0.1"]).refusal("mixed.test", 80, addresses) is None


def test_the_advice_of_a_refusal_works() -> None:
    for host, port, address in (
        ("fd00::1", 8080, "fd00::1"),
        ("a.test", 1, "10.0.0.1"),
        ("127.0.0.1", 80, "127.0.0.1"),
    ):
        told = Reachable().refusal(host, port, [ip_address(address)])
        assert told
        entry = told.partition("HTTP_ALLOWED_HOSTS=")[2].split()[0]
        assert not refused([entry], host, port, address)


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "http://intern.test",
            "intern.test/path",
            "*",
            "*.",
            "*intern.test",
            "a.*.test",
            "a b",
            "",
            "a..b",
            "10.0.0.1/8",
        ),
        *(
            "10.0.0.0/33",
            "fd00::/129",
            "intern.test:0",
            "intern.test:65536",
            "intern.test:http",
            "[fd00::5",
            "fe80::1%1",
        ),
        *("user@intern.test", "☃☃:80:80", "\u00ad.test", "1" * 64),
    ],
)
def test_an_entry_that_cannot_be_used_is_told_at_the_start(entry: str) -> None:
    with pytest.raises(HeadraceError, match=r"HTTP_ALLOWED_HOSTS: .* cannot be used"):
        Reachable(allowed_hosts=[entry])

"""URLs that lead, or try to lead, to where outgoing HTTP must not go. PORT stands for the port of a server on loopback.

Grouped by trick: plain addresses, IPv4 inside IPv6, odd spellings of numbers, names, Unicode, tricks with the syntax of
URLs, and other schemes. `NAMES` is what the names resolve to; more than one address means an answer with all of them.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address

PUBLIC = "93.184.215.14"
PUBLIC6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"

IPV4_BLOCKS = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("224.0.0.0/4", "240.0.0.0/4"),
)
METADATA = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "169.254.0.23")
IPV6 = (
    *("::", "::1", "0:0:0:0:0:0:0:1", "::2", "100::", "100::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fd20:ce::254"),
    *("fdff:ffff::1", "fe80::1", "fe80::a9fe:a9fe", "febf::1", "fec0::1", "feff::1", "ff00::1", "ff02::1", "ff0e::1"),
    *("2001:db8::1", "2001:db8:ffff::1", "3fff::1", "3fff:fff::1", "2001::1", "2001:2::1", "2001:10::1", "2001:20::1"),
    *("2001:1ff::1", "2002::1", "4000::1", "5f00::1", "8000::1", "e000::1", "1::1", "64:ff9b:1::1", "64:ff9c::1"),
    *("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "1fff::1"),
)
EMBEDDED = ("127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.1.1", "172.20.0.1", "100.64.0.1", "0.0.0.0")
SPELLED = ("127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.0.1", "0.0.0.0")


def embeddings(address: IPv4Address) -> dict[str, IPv6Address]:
    """Every way in which IPv6 carries an IPv4 address."""
    number = int(address)
    return {
        "mapped": IPv6Address(0xFFFF << 32 | number),
        "compatible": IPv6Address(number),
        "translated": IPv6Address(0xFFFF << 48 | number),
        "nat64": IPv6Address(int(IPv6Address("64:ff9b::")) | number),
        "nat64 local": IPv6Address(int(IPv6Address("64:ff9b:1::")) | number),
        "6to4": IPv6Address(0x2002 << 112 | number << 80 | 1),
        "teredo server": IPv6Address(0x20010000 << 96 | number << 64 | 0xFFFFFFFF),
        "teredo client": IPv6Address(0x20010000 << 96 | number ^ 0xFFFFFFFF),
        "isatap": IPv6Address(0x26062800 << 96 | 0x00005EFE << 32 | number),
        "isatap global": IPv6Address(0x26062800 << 96 | 0x02005EFE << 32 | number),
    }


def spellings(address: str) -> list[str]:
    """The forms that inet_aton reads: one to four parts, each decimal, octal or hexadecimal."""
    number = int(IPv4Address(address))
    a, b, c, d = address.split(".")
    parts = [[number], [int(a), number & 0xFFFFFF], [int(a), int(b), number & 0xFFFF], [int(a), int(b), int(c), int(d)]]
    plain = [".".join(map(str, each)) for each in parts[:3]]
    octal = [".".join(f"0{part:o}" for part in each) for each in parts]
    padded = [".".join(f"00000{part:o}" for part in each) for each in parts]
    hexes = [".".join(f"0x{part:x}" for part in each) for each in parts]
    shouted = [".".join(f"0X{part:08X}" for part in each) for each in parts]
    mixed = [f"0x{int(a):x}.{b}.0{int(c):o}.{d}", f"0{int(a):o}.0x{number & 0xFFFFFF:x}", f"{address}."]
    return [*plain, *octal, *padded, *hexes, *shouted, *mixed]


NAMES: dict[str, tuple[str, ...]] = {
    "localhost": ("127.0.0.1",),
    "localhost6": ("::1",),
    "localhost.localdomain": ("127.0.0.1",),
    "both.test": ("127.0.0.1", "::1"),
    "mapped.test": ("::ffff:127.0.0.1",),
    "nat64.test": ("64:ff9b::7f00:1",),
    "sixtofour.test": ("2002:7f00:1::",),
    "scoped.test": ("fe80::1%1",),
    "scoped-public.test": (f"{PUBLIC6}%1",),
    "zero.test": ("0.0.0.0",),
    "zero6.test": ("::",),
    "private.test": ("10.0.0.1",),
    "unique-local.test": ("fd12:3456:789a::1",),
    "multicast.test": ("224.0.0.1",),
    "broadcast.test": ("255.255.255.255",),
    "metadata.google.internal": ("169.254.169.254",),
    "metadata6.google.internal": ("fd20:ce::254",),
    "instance-data.ec2.internal": ("169.254.169.254",),
    "127.0.0.1.nip.test": ("127.0.0.1",),
    "good-first.test": (PUBLIC, "127.0.0.1"),
    "bad-first.test": ("127.0.0.1", PUBLIC),
    "good-many.test": (PUBLIC, PUBLIC6, "1.1.1.1", "8.8.8.8", "9.9.9.9", "1.0.0.1", "8.8.4.4", "4.4.4.4", "10.0.0.1"),
    "xn--mnchen-3ya.test": ("127.0.0.1",),
    "a_b.test": ("127.0.0.1",),
    "good.test": (PUBLIC,),
}
BAD_NAMES = tuple(name for name in NAMES if name != "good.test")

UNICODE = (
    *("http://１２７.0.0.1:PORT/", "http://127．0．0．1:PORT/", "http://127。0。0。1:PORT/", "http://127｡0｡0｡1:PORT/"),
    *("http://①②⑦.⓪.⓪.①:PORT/", "http://①②⑦.0.0.1:PORT/", "http://⑯⑨。②⑤④。⑯⑨。②⑤④/", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT/"),
    *(
        "http://ｌｏｃａｌｈｏｓｔ:PORT/",
        "http://local\u00adhost:PORT/",
        "http://local\u200bhost:PORT/",
        "http://𝟏𝟐𝟕.0.0.1:PORT/",
    ),
    *("http://١٢٧.0.0.1:PORT/", "http://127.0.0.1\uff0f@good.test:PORT/", "http://[::ﬀff:127.0.0.1]:PORT/"),
    *("http://good.test\u2044@127.0.0.1:PORT/", "http://127.0.0.1\u2024good.test:PORT/", "http://MÜNCHEN.test:PORT/"),
    *("http://127.0.0.1:\uff10\uff18/", "http://ʟocalhost:PORT/", "http://\U0001d7ed.0.0.1:PORT/"),
)

SYNTAX = (
    *("http://good.test@127.0.0.1:PORT/", "http://good.test:80@127.0.0.1:PORT/", "http://a:b@127.0.0.1:PORT/"),
    *("http://127.0.0.1:PORT#@good.test/", "http://127.0.0.1:PORT?@good.test/", "http://127.0.0.1:PORT/@good.test"),
    *("http://127.0.0.1:PORT\\@good.test/", "http://good.test\\@127.0.0.1:PORT/", "http:\\\\127.0.0.1:PORT\\"),
    *("http://127.0.0.1:PORT;good.test/", "http://good.test@good.test@127.0.0.1:PORT/", "http://@127.0.0.1:PORT/"),
    *("http://%31%32%37.0.0.1:PORT/", "http://127%2e0%2e0%2e1:PORT/", "http://%6c%6f%63alhost:PORT/"),
    *("http://127.0.0.1%00.good.test:PORT/", "http://127.0.0.1%0d%0a.good.test:PORT/", "http://localhost%23:PORT/"),
    *("http://good.test%40127.0.0.1:PORT/", "http://127.0.0.1%2f@good.test:PORT/", "http://[fe80::1%25eth0]:PORT/"),
    *("http://[fe80::1%eth0]:PORT/", "http://[::1%1]:PORT/", "http://[::1]good.test:PORT/", "http://[::1:PORT/"),
    *(
        "http://::1:PORT/",
        "http://[127.0.0.1]:PORT/",
        "http://[::ffff:7f00:1]:PORT/",
        "http://[::FFFF:127.0.0.1]:PORT/",
    ),
    *("http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/", "http://[::ffff:0x7f.0.0.1]:PORT/", "http://[v1.127.0.0.1]:PORT/"),
    *("http://127.0.0.1:PORT\t/", "http://127.0.0.1:PORT\n/", "http://127.0.\r\n0.1:PORT/", "\thttp://127.0.0.1:PORT/"),
    *("ht\ntp://127.0.0.1:PORT/", "http:/\t/127.0.0.1:PORT/", " http://127.0.0.1:PORT/", "http://127.0.0.1 :PORT/"),
    *("http:// 127.0.0.1:PORT/", "http://127.0.0.1\0.good.test:PORT/", "http://127.0.0.1:PORT\0/"),
    *(
        "http:///127.0.0.1:PORT/",
        "http:127.0.0.1:PORT/",
        "http:/127.0.0.1:PORT/",
        "//127.0.0.1:PORT/",
        "127.0.0.1:PORT",
    ),
    *("HTTP://127.0.0.1:PORT/", "hTTp://LOCALHOST:PORT/", "http://localhost.:PORT/", "http://LocalHost.:PORT/"),
    *("http://127.0.0.1.:PORT/", "http://localhost..:PORT/", "http://.localhost:PORT/", "http://127..0.1:PORT/"),
    *("http://127.0.0.1:+PORT/", "http://127.0.0.1:0PORT/", "http://127.0.0.1: PORT/", "http://127.0.0.1:PORT:80/"),
    *("http://127.0.0.1:0/", "http://127.0.0.1:65536/", "http://127.0.0.1:-1/", "http://127.0.0.1:99999999/"),
    *("http://", "http://:PORT/", "http://@:PORT/", "http://?", "http://#", "", " ", "/", "?", "http", "http:"),
    *(
        "http://127.0.0.1:PORT/../..//",
        "http://127.0.0.1:PORT/%2e%2e/",
        "https://127.0.0.1:PORT/",
        "https://localhost/",
    ),
    *("http://" + "a" * 64 + ".test/", "http://" + "a." * 130 + "test/", "http://127.0.0.1:PORT/" + "a" * 70_000),
    *(
        "http://256.256.256.256/",
        "http://127.0.0.1.2/",
        "http://0x/",
        "http://127.0.0.0x1:PORT/",
        "http://*/",
        "http://~/",
    ),
)

SCHEMES = tuple(
    f"{scheme}127.0.0.1:PORT/x"
    for scheme in (
        *(
            "file://",
            "file:///",
            "ftp://",
            "gopher://",
            "dict://",
            "ldap://",
            "ws://",
            "wss://",
            "unix://",
            "http+unix://",
        ),
        *("httpx://", "jar:http://", "data:text/plain,", "javascript:", "netdoc://", "sftp://", "tftp://", "smb://"),
        *(
            "view-source:http://",
            "blob:http://",
            "http2://",
            "socks5://",
            "about:",
            "redis://",
            "s3://",
            "://",
            "http!://",
        ),
    )
)


def corpus() -> list[str]:
    """All of it, each once."""
    edges = [str(IPv4Network(block)[index]) for block in IPV4_BLOCKS for index in (0, 1, -1)]
    plain = [f"http://{address}:PORT/" for address in (*edges, *METADATA)]
    plain6 = [f"http://[{address}]:PORT/" for address in IPV6]
    carried = [
        f"http://[{form}]:PORT/"
        for address in map(IPv4Address, EMBEDDED)
        for name, embedding in embeddings(address).items()
        for form in (
            {str(embedding), embedding.exploded, f"::ffff:{address}"} if name == "mapped" else {str(embedding)}
        )
    ]
    odd = [f"http://{form}:PORT/" for address in SPELLED for form in spellings(address)]
    named = [f"http://{name}:PORT/" for name in BAD_NAMES] + [f"http://{name.upper()}.:PORT/" for name in BAD_NAMES]
    return list(dict.fromkeys([*plain, *plain6, *sorted(carried), *odd, *named, *UNICODE, *SYNTAX, *SCHEMES]))

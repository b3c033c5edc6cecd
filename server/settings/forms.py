"""Forms that texts of settings must have, and what is said of one that has another: few read patterns."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

NAME = r"[^\s/:,;\[\]*]+"
HOST = rf"({NAME}|\[[0-9A-Fa-f:.]+\])"
HOST_NAME = rf"^{HOST}$"
IPV6 = r"[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(%[^\s/\]]+)?"
ADDRESS = rf"^({NAME}|{IPV6}|\[{IPV6}\])$"
ORIGIN = r"^(\*|null|[a-z][a-z0-9+.-]*://[^\s/,;]+)$"
COLLECTOR = rf"^https?://{HOST}(:[0-9]{{1,5}})?/?$"
KEY = r"^[a-z0-9_.-]{1,64}$"
WANTED = {
    ADDRESS: "an address or a name without a port, such as 0.0.0.0 or ::1; --port and the like have the ports",
    HOST_NAME: "a name without a port and without *, such as example.org, or an address such as [::1]",
    ORIGIN: "* or an origin such as https://example.org, without a slash at its end",
    COLLECTOR: "http://HOST:PORT or https://HOST:PORT",
    KEY: "up to 64 of a-z, 0-9, _, . and -, such as x-tenant",
}


WANTED_KINDS = {
    "tuple_type": "a text, or a list of texts",
    "path_type": "a text",
    "string_type": "a text",
    "too_short": "at least one",
}
"""Of values that only a file can have, by pydantic's name of what is wrong: it speaks of tuples and classes."""


SECRET_KEYS = ("authorization", "proxy-authorization", "cookie")
"""Of metadata and headers: what they say is for no log and no trace, where names of callers are."""


def _name_key(key: str) -> str:
    if key.endswith("-bin"):
        raise PydanticCustomError("bytes", "gRPC has bytes under a key that ends with -bin; expected another one")
    if key in SECRET_KEYS:
        raise PydanticCustomError(
            "secret", "what it says is secret, and names of callers are logged; expected another one"
        )
    return key


def _check_port(endpoint: str) -> str:
    """A larger one gRPC takes modulo 65536: traces would go to somebody else."""
    port = re.search(r":(\d+)/?$", endpoint)
    if port and not 1 <= int(port[1]) <= 65535:
        raise PydanticCustomError("port", "expected a port from 1 to 65535")
    return endpoint


Address = Annotated[str, Field(pattern=ADDRESS)]
"""To listen on; of IPv6 with brackets or without."""
HostName = Annotated[str, Field(pattern=HOST_NAME)]
"""What a request's `host` may say, without a port."""
Origin = Annotated[str, Field(pattern=ORIGIN)]
"""As browsers write it (RFC 6454): without a slash at the end."""
Collector = Annotated[str, Field(pattern=COLLECTOR), AfterValidator(_check_port)]
NO_NAME_KEY = {"not": {"pattern": rf"-bin$|^({'|'.join(SECRET_KEYS)})$"}}
"""What `_name_key` refuses, for whoever checks values by the schema: the Helm chart."""
CallerKey = Annotated[str, Field(pattern=KEY, json_schema_extra=NO_NAME_KEY), AfterValidator(_name_key)]
"""Of metadata."""

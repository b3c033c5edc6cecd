"""server.identity.tokens: what is kept of a token, and whose it is."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from server.identity.tokens import INDEXED, TokenTable, new_token, token_hash


def test_tokens_differ_and_are_long_enough_that_nobody_guesses_one() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(token.startswith("dragoman_") and len(token) == 9 + 43 and token.isascii() for token in tokens)


def test_a_hash_is_sha256_and_has_nothing_of_the_token() -> None:
    assert token_hash("abc") == "sha256:" + hashlib.sha256(b"abc").hexdigest()


@given(st.lists(st.text(min_size=1), unique=True, max_size=20), st.text())
def test_a_token_is_its_owners_and_no_other(tokens: list[str], stranger: str) -> None:
    table = TokenTable((token_hash(token), number) for number, token in enumerate(tokens))
    assert [table.owner(token) for token in tokens] == list(range(len(tokens)))
    assert table.owner(stranger) == (tokens.index(stranger) if stranger in tokens else None)


def test_hashes_that_begin_alike_are_told_apart() -> None:
    known = token_hash("abc")
    other = known[: len("sha256:") + 2 * INDEXED].ljust(len(known), "0")
    table = TokenTable([(other, "other"), (known, "abc's")])
    assert table.owner("abc") == "abc's"

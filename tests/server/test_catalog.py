"""server.catalog: which model a name means."""

import pytest

from server.catalog.catalog import Catalog
from server.errors import ModelNotFound

ONE, TWO = Catalog({"en-pt": 1}), Catalog({"en-pt": 1, "pt-en": 2})


def test_a_model_is_found_by_its_name() -> None:
    assert (ONE.find("en-pt"), TWO.find("pt-en")) == (1, 2)
    assert list(TWO) == [1, 2]


def test_the_only_model_needs_no_name() -> None:
    assert ONE.find("") == 1


@pytest.mark.parametrize(
    ("catalog", "name", "available"),
    [(ONE, "En-pt", "en-pt"), (TWO, "de-en", "en-pt, pt-en"), (TWO, "", "en-pt, pt-en")],
)
def test_an_unknown_model_is_told_what_there_is(catalog: Catalog[int], name: str, available: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        catalog.find(name, field="name")
    assert caught.value.metadata == {"model": name, "available": available}
    assert caught.value.field == "name"

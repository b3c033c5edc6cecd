"""A click log that anyone can make, in the shape of public ones: items with side features, and who saw what, and when.

python -m training.examples.click_log FOLDER writes items.tsv (item, category, brand, price band) and log.tsv (user,
second, item, 1 if it was clicked), in the order of time of each user. People click on what is of the category of
something that they clicked on a short while before, above all if it is of the same brand, and seldom on the same twice.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training.examples.folder import into_folder

USERS, SEEN, SEED = 2500, 40, 1
"""People, what each is shown, and where the dice begin."""
ITEMS, CATEGORIES, BRANDS, PRICES = 400, 20, 40, 5
REMEMBERED = 12
"""The last clicks, on which the next one depends."""
MINUTE, DAY = 60.0, 86_400.0


@dataclass(frozen=True)
class Item:
    """Something that is shown, with its side features."""

    name: str
    category: int
    brand: int
    price: int


@dataclass(frozen=True)
class Shown:
    """One item before one person."""

    user: int
    second: int
    item: Item
    clicked: bool


def make_items(generator: random.Random) -> list[Item]:
    """A brand is of one category or of two."""
    homes = [generator.sample(range(CATEGORIES), 2) for _ in range(BRANDS)]
    brands = [generator.randrange(BRANDS) for _ in range(ITEMS)]
    return [
        Item(f"i{index}", generator.choice(homes[brand]), brand, generator.randrange(PRICES))
        for index, brand in enumerate(brands)
    ]


def make_log(items: list[Item], users: int, generator: random.Random) -> Iterator[Shown]:
    """Person after person."""
    quality = {item: generator.gauss(0.0, 0.4) for item in items}
    of_category = [[item for item in items if item.category == category] for category in range(CATEGORIES)]
    for user in range(users):
        now, clicks = generator.uniform(0, 7 * DAY), list[tuple[float, Item]]()
        for _ in range(SEEN):
            now += generator.expovariate(1 / (5 * MINUTE if generator.random() < 0.7 else 1.5 * DAY))
            near = generator.choice(clicks)[1].category if clicks and generator.random() < 0.5 else None
            item = generator.choice(items if near is None else of_category[near])
            appeal = quality[item] + _interest(item, clicks, now)
            clicked = generator.random() < 1 / (1 + math.exp(-appeal))
            yield Shown(user, int(now), item, clicked)
            if clicked:
                clicks = [*clicks[1 - REMEMBERED :], (now, item)]


def _interest(item: Item, clicks: list[tuple[float, Item]], now: float) -> float:
    """What the clicks before add to the logit of the next one."""
    like = [
        math.exp((then - now) / DAY) * (1.6 if item.brand == other.brand else 1.0)
        for then, other in clicks
        if item.category == other.category
    ]
    again = any(item == other for _, other in clicks)
    return 3.0 * max(like, default=0.0) - 1.8 - 2.0 * again


def read(folder: Path) -> tuple[list[Item], list[Shown]]:
    """What `write` has written."""
    rows = [line.split("\t") for line in (folder / "items.tsv").read_text().splitlines()]
    items = {name: Item(name, *map(int, features)) for name, *features in rows}
    log = (line.split("\t") for line in (folder / "log.tsv").read_text().splitlines())
    return list(items.values()), [
        Shown(int(user), int(second), items[item], clicked == "1") for user, second, item, clicked in log
    ]


def write(folder: Path, users: int, seed: int) -> None:
    """Writes both files."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(seed)
    items = make_items(generator)
    rows = (f"{item.name}\t{item.category}\t{item.brand}\t{item.price}\n" for item in items)
    (folder / "items.tsv").write_text("".join(rows))
    log = make_log(items, users, generator)
    (folder / "log.tsv").write_text("".join(f"{it.user}\t{it.second}\t{it.item.name}\t{it.clicked:d}\n" for it in log))


if __name__ == "__main__":
    into_folder("click_log", __doc__, lambda folder: write(folder, USERS, SEED))

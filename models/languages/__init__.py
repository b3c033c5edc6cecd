"""Language tags (BCP 47), and what others write in their place."""

from models.languages.tags import WELL_FORMED, choose, lookup

__all__ = ["WELL_FORMED", "choose", "lookup"]

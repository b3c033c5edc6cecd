"""Language tags (BCP 47), and what others write in their place."""

from models.languages.tags import UNDETERMINED, WELL_FORMED, choose, lookup

__all__ = ["UNDETERMINED", "WELL_FORMED", "choose", "lookup"]

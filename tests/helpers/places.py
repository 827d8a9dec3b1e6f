"""Where things lie that tests read: the repository, and real counts outside it, which are never part of it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"

SHARED = ROOT.parent / "shared"
DATA = SHARED / "data"
PUMA = DATA / "puma"
RHODE_ISLAND = DATA / "ri_2010_blocks.csv.gz"
FACTS = ROOT / "tests" / "facts"  # what shipped data were written from
PRODUCTION_SETTINGS = FACTS / "production_settings.json"
DHC_SETTINGS = FACTS / "dhc_2020_settings.json"
HOUSEHOLD_TYPES = FACTS / "dhc_hhtype_levels.csv"
TABLE_CATALOGUE = FACTS / "table_catalog.csv.gz"

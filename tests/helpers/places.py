"""Where things lie that tests read: the repository, and real data outside it, which is never part of it."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"

SHARED = ROOT.parent / "shared"
DATA = SHARED / "data"
PUMA = DATA / "puma"
RHODE_ISLAND = DATA / "ri_2010_blocks.csv.gz"
PRODUCTION_SETTINGS = SHARED / "facts" / "production_settings.json"
DHC_SETTINGS = SHARED / "facts" / "dhc_2020_settings.json"
TABLE_CATALOGUE = SHARED / "facts" / "table_catalog.csv"

"""Reading measurements from files, and writing results to them; needs the extra ``frames``."""

from constraint_builders.extras import needing
from constraint_builders.lazy_names import names_when_asked

with needing("files and data frames need polars", "frames"):
    import polars  # noqa: F401
with needing("settings and schema files need msgspec", "frames"):
    import msgspec  # noqa: F401

# at once: its module has its name
from constraint_builders.files.published_tables import published_tables as published_tables

__getattr__, __dir__ = names_when_asked(__name__)

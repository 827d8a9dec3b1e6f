"""Reading measurements from files, and writing results to them; needs the extra ``frames``."""

from constraint_builders.extras import missing_extra

try:
    import polars  # noqa: F401
except ImportError as error:
    raise missing_extra("files and data frames need polars", "frames") from error
try:
    import msgspec  # noqa: F401
except ImportError as error:
    raise missing_extra("settings and schema files need msgspec", "frames") from error

from constraint_builders.files.block_tables import read_block_counts
from constraint_builders.files.exact_totals import ExactTotal, read_state_totals, read_totals
from constraint_builders.files.kept_variables import tied_settings
from constraint_builders.files.long_table import (
    estimates_frame,
    measurements_frame,
    rounded,
    with_measurements,
    write_frame,
)
from constraint_builders.files.measured_table import infer_schema, read_long_table
from constraint_builders.files.measurement_writer import write_noisy_measurements
from constraint_builders.files.noisy_measurements import Release, read_noisy_measurements
from constraint_builders.files.published_tables import PublishedLine, PublishedTable, PublishedTables, published_tables
from constraint_builders.files.reading_report import ReadingReport, RowCount, Unused
from constraint_builders.files.schema_file import SchemaFile, format_schema, read_schema_file, write_schema_file
from constraint_builders.files.settings import PRODUCTION, Settings, production_settings, read_settings
from constraint_builders.files.source import Format, add_format, frame_like
from constraint_builders.sources import combine_sources

__all__ = [
    "PRODUCTION",
    "ExactTotal",
    "Format",
    "PublishedLine",
    "PublishedTable",
    "PublishedTables",
    "ReadingReport",
    "Release",
    "RowCount",
    "SchemaFile",
    "Settings",
    "Unused",
    "add_format",
    "combine_sources",
    "estimates_frame",
    "format_schema",
    "frame_like",
    "infer_schema",
    "measurements_frame",
    "production_settings",
    "published_tables",
    "read_block_counts",
    "read_long_table",
    "read_noisy_measurements",
    "read_schema_file",
    "read_settings",
    "read_state_totals",
    "read_totals",
    "rounded",
    "tied_settings",
    "with_measurements",
    "write_frame",
    "write_noisy_measurements",
    "write_schema_file",
]

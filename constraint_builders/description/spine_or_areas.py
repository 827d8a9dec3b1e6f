"""Where tables are from: geounits of a spine, or areas, in levels."""

from __future__ import annotations

from typing import TypeAlias

from constraint_builders.description.areas import Areas
from constraint_builders.description.spine import Spine

Places: TypeAlias = Spine | Areas

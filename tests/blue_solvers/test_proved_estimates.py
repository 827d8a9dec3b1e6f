"""What `estimate` calls exact is the best estimate, to 1e-8 standard errors; the rest is marked or refused."""

from __future__ import annotations

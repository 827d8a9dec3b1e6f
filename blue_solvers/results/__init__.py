"""Estimates in folders, and questions to them."""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)

"""Other systems' tables, forecasts and answers, in and out; none of those systems is imported."""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)

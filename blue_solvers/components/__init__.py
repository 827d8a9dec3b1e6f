"""The decomposition of tables into components that equal variances keep apart."""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)

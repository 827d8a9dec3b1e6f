"""What is known of a result, as one page that needs no network."""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)

"""Files to try things on: noisy measurements of `gallery.berkeley`, real censuses, networks and series."""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)

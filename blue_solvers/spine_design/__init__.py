"""Which spine, and which budget on it, makes what is wanted most precise.

References
----------
Cumings-Menon et al., "Geographic Spines in the 2020 Census Disclosure Avoidance System": "the paper" in this package.
"""

from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)

"""The two passes over more than fits in memory: by subtree, from Parquet to Parquet; needs the extra ``frames``.

A problem is cut into parts: subtrees, and the top of the tree above them. Going up, every part tells in a small message
what it knows of its root. The top is solved in memory. Going down, every part is read again and writes its estimates.
Whatever is done is on disk, whole or not at all and with a checksum: a run that was killed resumes, and
gives the same bytes.
"""

from blue_solvers.streaming.partition import partition as partition  # at once: its module has its name
from constraint_builders.lazy_names import names_when_asked

__getattr__, __dir__ = names_when_asked(__name__)

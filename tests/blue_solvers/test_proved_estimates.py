"""What `estimate` calls exact is the best estimate, to 1e-8 standard errors; the rest is marked or refused."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from blue_solvers import ConvergenceError, UnsupportedProblemError, blue, certify, estimate
from constraint_builders import Problem, Schema, gallery
from noise_mechanisms import add_noise

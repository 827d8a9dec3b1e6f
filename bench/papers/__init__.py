"""Experiments of papers, beside what these print; figures that they print are files of data here."""

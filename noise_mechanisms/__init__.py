"""The noise of privacy mechanisms: its laws, drawing it, accounting for it."""

from noise_mechanisms.add_noise import add_noise, draw_noise

__all__ = ["add_noise", "draw_noise"]

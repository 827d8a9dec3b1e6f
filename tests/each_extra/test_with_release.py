"""With the extra ``release``: OpenDP's exact samplers."""

from noise_mechanisms.laws import DiscreteGaussian


def test_a_release_grade_draw() -> None:
    draws = DiscreteGaussian(4.0).release_sample(1000)
    assert draws.shape == (1000,)
    assert 2 < draws.astype(float).var() < 7

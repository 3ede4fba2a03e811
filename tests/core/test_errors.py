"""What an error says about names."""

from ludus.core.errors import nearest


def test_names_are_compared_whatever_their_case() -> None:
    assert nearest("LEDUK", ["leduc", "kuhn"]) == "; did you mean 'leduc'?"
    assert nearest("cartpol", ["CartPole", "Acrobot"]) == "; did you mean 'CartPole'?"
    assert nearest("x", ["kuhn", "leduc"]) == " (known: kuhn, leduc)."

"""ALiBi's slopes, for the scripts of models that have it."""
import math


def slopes(heads):
    """Of the paper (arXiv:2108.12409), for any number of heads."""
    power = 2 ** math.floor(math.log2(heads))
    return [2 ** (-8 * (i + 1) / power) for i in range(power)] + [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]

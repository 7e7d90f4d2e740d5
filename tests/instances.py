"""What tests share: an instance of every divergence, the labels of the reference."""

from fferm.divergences import KL, Affine, Alpha, Divergence, LinearTail, get

# Divergences that are made from another one; every other has a default instance.
MADE_OF_ANOTHER = {
    "affine": Affine(KL(), scale=2.0),
    "linear_tail": LinearTail(KL()),
}
# Every divergence that fferm registers, so a new one is tested without a new line.
REGISTERED = {
    name: MADE_OF_ANOTHER.get(name) or get(name)
    for name in Divergence.known()
    if Divergence.registered(name).__module__.startswith("fferm.")
}
# The divergences of the reference values, by their labels there.
REFERENCE = {
    **{name: get(name) for name in ("chi2", "kl", "reverse_kl", "tv", "js")},
    "hellinger": get("hellinger"),
    **{
        f"{name}_paper": get(name, normalisation="paper")
        for name in ("kl", "reverse_kl", "hellinger")
    },
    **{f"alpha={a}": Alpha(power=float(a)) for a in ("-1", "0.5", "2", "3")},
}
# The tables of the reference values.
TABLES = (
    "t22_a",
    "t22_b",
    "t22_independent",
    "t22_near_dyadic",
    "t22_zero",
    "t22_perfect",
    "t24_a",
    "t34_a",
    "t34_zero",
)

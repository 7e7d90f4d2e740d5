"""What researchers need and users do not: baselines, and the paper's experiments.

It may import every other package, and none but `fferm.testing`, `fferm.report` and
`fferm.cli` may import it.
"""

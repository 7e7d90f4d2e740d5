"""What researchers need and users do not: baselines, and the paper's experiments."""

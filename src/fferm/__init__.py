"""Fair empirical risk minimisation with f-divergences."""

"""What people do with models and data: fit, compare, score, impute, find anomalies."""

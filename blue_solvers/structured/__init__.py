"""The nearest problem whose noise has equal variances within tables, and iterations around its exact estimate."""

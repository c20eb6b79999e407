"""The current statuses: of every instance, or folded as a report folds them. Without Spark."""

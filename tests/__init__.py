"""The tests. What they share is imported as ``tests.programs``: by tests, by drivers and by Spark's workers alike."""

"""Many runs as Spark tasks, and their results in a folder."""

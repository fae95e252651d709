"""The jobs over trace rows: functions from DataFrame to DataFrame."""

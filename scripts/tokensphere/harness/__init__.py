"""What surrounds a job and cannot change a number: log, progress, records, errors, code closure."""

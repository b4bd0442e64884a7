"""Images and labels: records, the sets that they make up, scanned digits."""

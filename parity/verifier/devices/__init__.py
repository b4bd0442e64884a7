"""Programs as they are, on two devices or under two settings: which operations compute other numbers."""

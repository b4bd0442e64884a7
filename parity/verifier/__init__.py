"""Where and why two models differ."""

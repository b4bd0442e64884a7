"""The verifier: find where and why two programs, or two recordings of training, differ."""

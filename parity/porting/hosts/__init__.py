"""Writing a vision tower back into a host: the larger model that the tower is a part of."""

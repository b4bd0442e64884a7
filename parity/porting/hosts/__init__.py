"""A tower put back into the larger model that it is a part of."""

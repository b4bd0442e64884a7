"""How pixels become numbers."""

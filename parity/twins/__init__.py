"""Are the two twins one function? Checks of the function, of training steps, of timm's whole family."""

"""Why two models differ, by their operations; and two recordings of training, by the rules of a step."""

"""What a checkpoint is: its dialect, its model among several, its schema's fields, or a question."""

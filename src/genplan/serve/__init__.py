"""A local web page and its API: edit mazes, plan, play episodes, follow trainings."""

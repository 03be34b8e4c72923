"""Views of plain data: frames of animations, and text for terminals."""

"""Pictures as inline SVG: timelines, lines, squares and plots."""

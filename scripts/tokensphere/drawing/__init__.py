"""Figures: one style, captions, and one module for each kind of panel."""

"""How do reasons look? An explanation as HTML, for notebooks and for pages."""

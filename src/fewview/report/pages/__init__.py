"""Pages about samples: predictions, data as they are, and the local page that makes both."""

"""The paper's tables, figures and claims, computed with fewview and set beside what it prints."""

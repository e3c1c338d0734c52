"""What everything stands on: errors, checkers, files that appear whole, numbers by counters.

Nothing here knows of samples, tasks or methods. numpy is all it needs.
"""

"""What everything stands on: errors, files that appear whole, numbers drawn by counters.

Nothing here knows of samples, tasks or methods. numpy is all it needs.
"""

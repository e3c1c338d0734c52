"""How are pictures made? One engine draws every chart, for pages and for print.

Matplotlib is imported by the functions that draw.
"""

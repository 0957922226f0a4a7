"""The layout, told to a person.

explain.py       as text and JSON                 drawing.py   as Mermaid and SVG
layout_data.py   the plain data of both           running.py   what only a running query knows
"""

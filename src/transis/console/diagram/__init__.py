"""A run as a space-time diagram: nodes down, time across.

`picture.py` reads a history into things to be drawn, `traffic.py` bundles its messages, `scale.py` maps time to x,
`layout.py` decides where everything goes, `layers.py` and `marks.py` draw it, `page.py` wraps it for a browser. Only
`file.py` writes anything.
"""

"""Tables, figures and sentences, and the renderers of them: CSV and JSON, terminal, HTML, workbook, SVG.

Nothing here knows of what kind an answer is.
"""

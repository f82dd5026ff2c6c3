"""Drawing as text: elements of SVG and HTML, colours for light and dark, words that fit. Shared by diagrams and reports."""

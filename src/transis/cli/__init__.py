"""The command `transis`. Only this package prints for people."""

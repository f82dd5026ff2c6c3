"""Lansis, the second engine: broadcast with acknowledgements that ride on data, a DAG, and a born order (transis-1992)."""

"""Engine 2: Lansis. Broadcast, acknowledgements that ride on data, a DAG, an order born with the bursts (transis-1992)."""

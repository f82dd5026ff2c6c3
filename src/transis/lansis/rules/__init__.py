"""The delivery rules of lansis-1992 3.1, one to a file: basic, causal, agreed by all-ack or by ToTo, safe."""

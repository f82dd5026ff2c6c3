"""What happened: the vocabulary of events, the recorder that nodes write, the readers (traces.md)."""

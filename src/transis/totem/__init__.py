"""Engine 1: the Totem single ring (TOCS95; protocols section 1). See `engine.py` for the way in."""

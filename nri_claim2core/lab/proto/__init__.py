"""Message classes of the CRI subset, generated from cri.proto; nothing is written by hand here."""

"""`minibroker explain`: names every byte of a frame, a batch or a file."""

"""What every coordinator does with its state topic."""

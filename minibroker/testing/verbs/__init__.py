"""What a test can do with a broker: the methods of `Broker`, by what they are about."""

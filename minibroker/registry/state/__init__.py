"""What a registry holds and decides: a fold over the topic `_schemas`, and the changes that it allows. No HTTP."""

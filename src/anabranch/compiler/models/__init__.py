"""What was read, as models with reasons: state, key, selectivity, what is passed on unchanged."""

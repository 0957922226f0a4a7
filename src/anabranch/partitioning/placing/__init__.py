"""Where keys should be: constructions, what they promise, and when one of them is worth its migration."""

"""Reading the code of operators: an abstract interpreter over Python's syntax trees."""

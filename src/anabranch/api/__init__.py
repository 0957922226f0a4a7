"""What the user touches: session, stream, operators, windows, writer, query handle."""

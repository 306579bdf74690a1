"""The kits for tests in Go, Java and Node.js."""
